// SPDX-License-Identifier: Apache-2.0
// calibrate run against a fleet that measures nothing: cases, records, failures and exit status.
#include <doctest/doctest.h>

#include <atomic>
#include <sstream>

#include "calibrate/host_facts.hpp"
#include "calibrate/run/command.hpp"
#include "calibrate/run/report.hpp"
#include "calibrate/run/together.hpp"
#include "calibrate/run/trouble.hpp"
#include "configs/calibration.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

RunOptions options_for(std::vector<std::string> methods, std::vector<std::string> contexts) {
    RunOptions options;
    options.methods = std::move(methods);
    options.contexts = std::move(contexts);
    options.gpus = "2";
    options.layers = "1";
    return options;
}

/// Measures what was predicted, times a factor for each case of a name.
class FakeFleet : public RunFleet {
 public:
    double slower = 1;
    double larger = 1;
    std::string fails;  ///< this case throws
    ExitCode fails_with = ExitCode::failure;
    bool alive = true;
    std::vector<std::string> seen;

    Json provenance() override { return {{"record", "provenance"}, {"gpus", {{{"name", "fake"}}}}}; }
    int gpus() override { return 2; }
    bool usable() override { return alive; }
    CaseMeasurement run(const CasePlan& plan, const RunProtocol& protocol) override {
        seen.push_back(plan.one.name);
        if (plan.one.name.starts_with(fails) && !fails.empty()) {
            throw Error("rank 1: it broke", "'attention' in last block", "try less", fails_with);
        }
        CaseMeasurement measured;
        for (const RankPlan& rank : plan.ranks) {
            RankMeasurement mine;
            mine.rank = rank.rank;
            // The second rank is the slower one.
            mine.seconds.assign(static_cast<std::size_t>(protocol.steps),
                                rank.step.seconds.value * slower * (rank.rank == 1 ? 1.0 : 0.5));
            mine.pool_peak.value =
                static_cast<std::int64_t>(larger * static_cast<double>(rank.memory.device_peak.value)) -
                (1 - rank.rank);
            mine.requested.segments.resize(rank.schedule.segments.size());
            mine.segments = rank.segments;
            Event event{};
            event.kind = EventKind::attention;
            event.name = "attention";
            event.attention = {1024, 1024, 16, 4, 128, 1, true, false};
            mine.ops.push_back({event, Phase::forward, 1, 0.25, 0, {}});
            mine.ops.push_back({event, Phase::recompute, 1, rank.rank == 1 ? 0.5 : 0.4, 0, {}});
            Event exchange{};
            exchange.kind = EventKind::collective;
            exchange.stream = Stream::ulysses;
            exchange.name = "all-to-all";
            exchange.collective = {CollectiveKind::all_to_all, CommGroup::ulysses, 1024};
            // Each rank waits in one of the two for the other.
            const bool second = rank.rank == 1;
            mine.ops.push_back({exchange, Phase::forward, 2, 0.02, 0.01,
                                second ? std::vector{0.001, 0.019} : std::vector{0.012, 0.002}});
            mine.workspaces.push_back({event.attention, Bytes{300}, Bytes{200}});
            measured.ranks.push_back(mine);
        }
        measured.seconds = measured.ranks[1].seconds;
        if (!plan.one.blocks_only) measured.losses = {11.76, 10.5, 9.125};
        return measured;
    }
};

struct Session {
    ExitCode code{};
    std::vector<Json> lines;
};

Session run_with(FakeFleet& fleet, const RunOptions& run, double budget = 0) {
    const TemporaryDirectory directory;
    CalibrateOptions options;
    options.action = CalibrateAction::run;
    options.run = run;
    options.output = directory.path("runs.jsonl");
    options.selection.budget = budget;
    // The fleet is the test's own.
    struct Borrowed : RunFleet {
        explicit Borrowed(FakeFleet& lent) : fleet(lent) {}
        FakeFleet& fleet;
        Json provenance() override { return fleet.provenance(); }
        int gpus() override { return fleet.gpus(); }
        bool usable() override { return fleet.usable(); }
        CaseMeasurement run(const CasePlan& plan, const RunProtocol& protocol) override {
            return fleet.run(plan, protocol);
        }
    };
    Session session;
    session.code = run_runs(options, {"run"}, [&](int gpus) {
        CHECK(gpus == 2);
        return std::make_unique<Borrowed>(fleet);
    });
    std::istringstream text(read_file(options.output));
    for (std::string line; std::getline(text, line);) session.lines.push_back(Json::parse(line));
    return session;
}

}  // namespace

TEST_CASE("lists combine: every method at every context, stages for upipe and chunks for fpdt alone") {
    RunOptions options = options_for({"ulysses", "upipe", "fpdt"}, {"64K", "128K"});
    options.heads_per_stage = {"8", "16"};
    options.chunk_tokens = {"16K"};
    const std::vector<RunCase> cases = plan_cases(options);
    std::vector<std::string> names;
    for (const RunCase& one : cases) names.push_back(one.name);
    CHECK(names == std::vector<std::string>{"ulysses 64K, 2x1", "ulysses 128K, 2x1", "upipe 64K U 8, 2x1",
                                            "upipe 64K U 16, 2x1", "upipe 128K U 8, 2x1", "upipe 128K U 16, 2x1",
                                            "fpdt 64K chunk 16K host, 2x1", "fpdt 128K chunk 16K host, 2x1"});
    for (const RunCase& one : cases) {
        CHECK(one.recipe.implementation == Implementation::lean);
        CHECK(one.recipe.attention_kernel == AttentionKernel::cudnn);
        CHECK(one.recipe.precision.compute == NumberFormat::bf16);
        CHECK(one.recipe.sharding.strategy == ShardingStrategy::fsdp);
        CHECK(one.recipe.offload.block_inputs == HostPlace::pinned);
        CHECK(one.model.layers == 1);
        CHECK(one.cluster.gpus() == 2);
    }
}

TEST_CASE("what no recipe allows is a case with a reason; what is wrong with all is an error") {
    RunOptions options = options_for({"upipe"}, {"64K"});
    options.heads_per_stage = {"8", "7"};
    const std::vector<RunCase> cases = plan_cases(options);
    CHECK(cases[0].invalid.empty());
    CHECK(contains(cases[1].invalid, "7 heads per stage"));
    const auto refused = [](auto change) {
        RunOptions wrong = options_for({"ulysses"}, {"64K"});
        change(wrong);
        try {
            plan_cases(wrong);
        } catch (const Error& error) {
            CHECK(error.exit_code() == ExitCode::usage);
            return error.where();
        }
        return std::string("accepted");
    };
    CHECK(refused([](RunOptions& o) { o.gpus = "16"; }) == "--gpus");
    CHECK(refused([](RunOptions& o) { o.layers = "33"; }) == "--layers");
    CHECK(refused([](RunOptions& o) { o.methods = {"ulises"}; }) == "--method");
    CHECK(refused([](RunOptions& o) { o.contexts = {"64Q"}; }) == "--context");
    CHECK(refused([](RunOptions& o) { o.sets = {"implementation=alst"}; }) == "--set");
    CHECK(refused([](RunOptions& o) { o.sets = {"precision.compute=fp16"}; }) == "--set");
    CHECK(refused([](RunOptions& o) { o.sets = {"batch=2"}; }) == "--set");
    CHECK(refused([](RunOptions& o) { o.sets = {"attention_kernel=fa3"}; }) == "--set");
    CHECK(refused([](RunOptions& o) { o.sets = {"nonsense=1"}; }) == "--set nonsense=1");
    CHECK(refused([](RunOptions& o) { o.model = "llama9"; }) == "--model llama9");
}

TEST_CASE("a record holds prediction, measurement, signed errors and the worst rank") {
    FakeFleet fleet;
    fleet.slower = 1.1;
    fleet.larger = 1.02;
    const Session session = run_with(fleet, options_for({"ulysses"}, {"64K"}));
    CHECK(session.code == ExitCode::ok);
    REQUIRE(session.lines.size() == 2);
    CHECK(session.lines[0]["record"] == "provenance");
    CHECK(session.lines[0]["command"] == "headroom calibrate run");
    const Json& record = session.lines[1];
    CHECK(record["status"] == "ok");
    CHECK(record["time"]["error"].get<double>() == doctest::Approx(0.1));
    CHECK(record["time"]["worst_rank"] == 1);
    CHECK(record["memory"]["error"].get<double>() == doctest::Approx(0.02));
    CHECK(record["memory"]["worst_rank"] == 1);
    CHECK(record["recipe"]["ulysses"] == "2");
    CHECK(record["recipe"]["context"] == "65536");
    const Json& attention = record["ops"][0];
    CHECK(attention["name"] == "attention");
    CHECK(attention["launches"] == 2);  // of forward and recompute
    CHECK(attention["measured_seconds"] == 0.75);
    CHECK(attention["predicted_seconds"].get<double>() > 0);
    bool exchange = false;
    for (const Json& part : record["parts"]) {
        if (part["part"] != "all_to_all") continue;
        exchange = true;
        CHECK(part["measured_seconds"] == 0.02);
        CHECK(part["waited_for_seconds"] == 0.01);
        CHECK(part["without_waiting_seconds"].get<double>() == doctest::Approx(0.003));
    }
    CHECK(exchange);
    CHECK(record["workspaces"][0]["wanted_bytes"] == 300);
    CHECK(record["loss"] == Json{11.76, 10.5, 9.125});
    CHECK(contains(parts_text(record), "  loss 11.76 to 9.12 over 3 steps\n"));
    for (const Json& segment : record["segments"]) CHECK(segment["error"] == 0);
}

TEST_CASE("a run without the loss has none in its record, and what has no description is no case") {
    FakeFleet fleet;
    RunOptions options = options_for({"ulysses"}, {"64K"});
    options.blocks_only = true;
    const Session session = run_with(fleet, options);
    CHECK(session.code == ExitCode::ok);
    CHECK_FALSE(session.lines[1].contains("loss"));
    CHECK_FALSE(contains(parts_text(session.lines[1]), "loss"));

    options = options_for({"ulysses", "native"}, {"64K"});
    const std::vector<RunCase> cases = plan_cases(options);
    CHECK(cases[0].invalid.empty());
    CHECK_FALSE(cases[1].invalid.empty());
    for (const RankPlan& rank : predict_case(cases[0], load_calibration("h200")).ranks) {
        CHECK_FALSE(rank.schedule.descriptions.empty());
        CHECK(rank.work.ring_rank == 0);
    }
}

TEST_CASE("predicted segments add up to the step") {
    for (const char* method : {"ulysses", "ring", "upipe", "fpdt"}) {
        const RunCase one = plan_cases(options_for({method}, {"128K"})).front();
        const CasePlan plan = predict_case(one, load_calibration("h200"));
        for (const RankPlan& rank : plan.ranks) {
            double sum = 0;
            for (const double seconds : rank.segments) sum += seconds;
            CHECK(sum == doctest::Approx(rank.step.seconds.value).epsilon(0.02));
            double attention = 0;
            for (const PredictedOp& op : rank.ops) {
                if (op.name.starts_with("attention")) attention += op.seconds;
            }
            CHECK(attention >= 0.99 * rank.step.parts[static_cast<std::size_t>(Part::attention)].busy.value);
        }
    }
}

TEST_CASE("a case that fails or is too large is recorded, and the next goes on") {
    FakeFleet fleet;
    fleet.fails = "ring";
    const RunOptions options = options_for({"ulysses", "ring", "upipe"}, {"64K"});
    Session session = run_with(fleet, options);
    CHECK(session.code == ExitCode::failure);
    REQUIRE(session.lines.size() == 4);
    CHECK(session.lines[2]["status"] == "failed");
    CHECK(session.lines[2]["reason"] == "rank 1: it broke ('attention' in last block); try less");
    CHECK(session.lines[3]["status"] == "ok");
    fleet.fails_with = ExitCode::does_not_fit;
    session = run_with(fleet, options);
    CHECK(session.code == ExitCode::does_not_fit);
    CHECK(session.lines[2]["status"] == "out_of_memory");
}

TEST_CASE("Ctrl-C and a lost GPU end the session; the lines before stay") {
    FakeFleet fleet;
    fleet.fails = "ring";
    fleet.fails_with = ExitCode::interrupted;
    Session session = run_with(fleet, options_for({"ulysses", "ring", "upipe"}, {"64K"}));
    CHECK(session.code == ExitCode::interrupted);
    CHECK(session.lines.size() == 2);
    fleet.fails_with = ExitCode::failure;
    fleet.alive = false;
    session = run_with(fleet, options_for({"ulysses", "ring"}, {"64K"}));
    CHECK(session.code == ExitCode::failure);
    CHECK(session.lines.size() == 2);
    CHECK(session.lines[1]["status"] == "ok");
}

TEST_CASE("what would end beyond the budget is left out") {
    FakeFleet fleet;
    const Session session = run_with(fleet, options_for({"ulysses"}, {"64K", "2M", "128K"}), 60);
    CHECK(session.code == ExitCode::ok);
    CHECK(fleet.seen == std::vector<std::string>{"ulysses 64K, 2x1", "ulysses 128K, 2x1"});
    CHECK(session.lines[2]["status"] == "left_out");
}

TEST_CASE("a dry run prints predictions without a GPU, and says where headroom-calibrate is missing otherwise") {
    const Outcome dry = run_headroom({"calibrate", "run", "--method", "ulysses,upipe", "--context", "64K", "--gpus",
                                      "2", "--layers", "1", "--heads-per-stage", "8,7", "--dry-run"});
    CHECK(dry.status == 0);
    CHECK(contains(dry.out, "ulysses 64K, 2x1"));
    CHECK(contains(dry.out, "upipe 64K U 8, 2x1"));
    CHECK(contains(dry.out, "invalid: 7 heads per stage"));
    CHECK(run_headroom({"calibrate", "run", "--method", "ulysses"}).status == 2);
    CHECK(run_headroom({"calibrate", "run", "--context", "64K", "--method", "ulysses", "--steps", "0"}).status == 2);
}

TEST_CASE("a rank that fails frees the others, whether they look or hang") {
    Team team(3, [](int) {});
    Trouble trouble;
    std::atomic<bool> aborted{false};
    std::atomic<int> stopped{0};
    const auto abort = [&] { aborted = true; };
    const auto hang = [&] {  // as in a call of NCCL that waits for a peer; bounded, or a failing test would not end
        const double begin = monotonic_seconds();
        while (!aborted && monotonic_seconds() - begin < 10) {
        }
    };
    const auto action = [&](int rank) {
        if (rank == 1) throw Error("the GPU fell off", "'attention' in last block", "", ExitCode::failure);
        if (rank == 0) {
            while (true) {  // between launches it looks
                try {
                    trouble.check();
                } catch (const Error&) {
                    ++stopped;
                    throw;
                }
            }
        }
        hang();
        ++stopped;
    };
    CHECK_THROWS_AS(act_together(team, trouble, action, abort), Error);
    CHECK(aborted);
    CHECK(stopped == 2);
    CHECK(std::string(trouble.error().what()) == "rank 1: the GPU fell off");

    // The team goes on afterwards, and nothing is aborted that ends by itself.
    trouble.reset(nullptr);
    aborted = false;
    std::atomic<int> ran{0};
    act_together(
        team, trouble, [&](int) { ++ran; }, abort);
    CHECK(ran == 3);
    CHECK_FALSE(aborted);

    // Ctrl-C while all hang.
    const std::atomic<bool> interrupted{true};
    trouble.reset(&interrupted);
    act_together(
        team, trouble, [&](int) { hang(); }, abort);
    CHECK(aborted);
    CHECK(trouble.error().exit_code() == ExitCode::interrupted);
}

TEST_CASE("the first error of a case is kept, with its rank") {
    Trouble trouble;
    CHECK_FALSE(trouble.any());
    trouble.check();
    trouble.report(1, Error("no memory", "here", "less", ExitCode::does_not_fit));
    trouble.report(0, Error("stopped"));
    CHECK(trouble.any());
    CHECK_THROWS_AS(trouble.check(), Error);
    CHECK(std::string(trouble.error().what()) == "rank 1: no memory");
    CHECK(trouble.error().exit_code() == ExitCode::does_not_fit);
    const std::atomic<bool> interrupted{true};
    trouble.reset(&interrupted);
    CHECK(trouble.any());
    CHECK(trouble.error().exit_code() == ExitCode::interrupted);
    trouble.reset(nullptr);
    CHECK_FALSE(trouble.any());
}

}  // namespace headroom
