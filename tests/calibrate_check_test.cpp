// SPDX-License-Identifier: Apache-2.0
// The lean schedules compute attention: run by ranks that are threads, in float and double arithmetic, every method
// gives the output and the gradients that the formula gives. And what is wrong in a schedule is found when it runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "calibrate/check.hpp"
#include "calibrate/check_command.hpp"
#include "calibrate/host_device.hpp"
#include "models/attention_step.hpp"
#include "models/error.hpp"
#include "planner/memory_replay.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {
namespace {

/// 8 query heads on 4 KV heads of 8, 48 tokens: 1, 2, 3 and 4 chunks and up to 4 ranks divide them.
TransformerShape small_model() {
    TransformerShape model;
    model.layers = 1;
    model.hidden = 24;
    model.heads = 8;
    model.kv_heads = 4;
    model.head_dim = 8;
    model.ffn = 32;
    model.vocabulary = 16;
    return model;
}

TransformerShape with_qk_norm(TransformerShape model) {
    model.qk_norm = QkNorm::per_head;
    return model;
}

constexpr std::int64_t context = 96;

/// With and without QK norm.
std::vector<CheckCase> all_cases(int ranks) {
    std::vector<CheckCase> cases = check_cases(ranks, small_model(), context, 4);
    for (CheckCase& one : check_cases(ranks, with_qk_norm(small_model()), context, 4)) cases.push_back(std::move(one));
    return cases;
}

CheckErrors errors_on_host(const CheckCase& which, const CheckReference& reference) {
    HostRanks ranks(which.work.recipe.ulysses, which.work.recipe.ring);
    return check(
        which, reference, [&](int rank) { return std::make_unique<HostDevice>(ranks, rank); },
        [&] { ranks.give_up(); });
}

TEST_CASE("every method's output and gradients are those of attention, on 1 to 4 ranks") {
    const CheckReference plain(small_model(), context);
    const CheckReference normed(with_qk_norm(small_model()), context);
    for (const int ranks : {1, 2, 3, 4}) {
        for (const CheckCase& which : all_cases(ranks)) {
            CAPTURE(ranks);
            CAPTURE(which.name);
            const bool norms = which.work.model.qk_norm != QkNorm::none;
            const CheckErrors errors = errors_on_host(which, norms ? normed : plain);
            CHECK((errors.query_norm > 0) == norms);
            CHECK((errors.key_norm > 0) == norms);
            CAPTURE(errors.output);
            CAPTURE(errors.input_gradient);
            CAPTURE(errors.query_weight);
            CAPTURE(errors.key_weight);
            CAPTURE(errors.value_weight);
            CAPTURE(errors.output_weight);
            // Sums of some hundred float terms: 2^-24 times about the root of their number.
            CHECK(errors.largest() < 3e-6);
        }
    }
}

/// Two steps on different streams over one tensor, as wrong as asked.
struct Faults {
    bool waits = true;          ///< the copy waits for the kernel
    bool waits_to_free = true;  ///< what comes after the free waits for the copy
    bool frees_early = false;
    std::int64_t bytes = 64;

    void run() const {
        Schedule schedule;
        Builder to(schedule);
        to.describe();
        to.segment("all", Phase::forward);
        const TensorId from = to.allocate("from", Group::attention, {64});
        const TensorId host = to.allocate("host", Group::attention, {64}, Place::host_pinned);
        to.memory_bound("kernel", MemoryKernel::copy, {64}, {64});
        to.computes(Transfer{{Move{host, from, 64}}});
        if (frees_early) to.release(from);
        if (waits) to.wait(Stream::device_to_host, to.record(Stream::compute));
        to.copy("copy", Stream::device_to_host, {true, true, false, bytes});
        to.computes(Transfer{{Move{from, host, bytes}}});
        if (waits_to_free) to.wait(Stream::compute, to.record(Stream::device_to_host));
        if (!frees_early) to.release(from);
        const TensorId other = to.allocate("other", Group::attention, {64}, Place::host_pinned);
        const TensorId next = to.allocate("next", Group::attention, {64});
        to.memory_bound("kernel again", MemoryKernel::copy, {64}, {64});
        to.computes(Transfer{{Move{other, next, 64}}});
        to.release(next, other, host);
        to.finish();
        HostRanks ranks(1, 1);
        HostDevice device(ranks, 0);
        Interpreter interpreter(schedule, 4, 1, device);
        interpreter.run(schedule.segments.front());
        CHECK(interpreter.live_bytes() == 0);
        CHECK(interpreter.peak_bytes() == 64);
    }
    std::string complaint() const {
        try {
            run();
        } catch (const Error& error) {
            return error.what();
        }
        return "none";
    }
};

TEST_CASE("a schedule that is wrong is caught when it runs") {
    CHECK(Faults{}.complaint() == "none");
    CHECK(Faults{.waits = false}.complaint().find("does not wait for 'kernel' on the compute stream") !=
          std::string::npos);
    CHECK(Faults{.waits_to_free = false}.complaint().find(
              "'next' may lie where a freed tensor lay that 'copy' on the device-to-host stream still uses") !=
          std::string::npos);
    CHECK(Faults{.frees_early = true}.complaint().find("a tensor is used that is not alive") != std::string::npos);
    CHECK(Faults{.bytes = 65}.complaint().find("bytes 0 to 65 of 'from' are used, which has 64") != std::string::npos);
}

TEST_CASE("a launch that does not say what it computes cannot be run") {
    Schedule schedule;
    Builder to(schedule);
    to.segment("all", Phase::forward);
    to.gemm("product", 1, 1, 1);
    to.finish();
    HostRanks ranks(1, 1);
    HostDevice device(ranks, 0);
    Interpreter interpreter(schedule, 4, 1, device);
    CHECK_THROWS_WITH_AS(interpreter.run(schedule.segments.front()), doctest::Contains("does not say what it computes"),
                         Error);
}

TEST_CASE("streams of every method that moves data wait for each other: without their waits the check fails") {
    for (const int ranks : {1, 2}) {
        for (const CheckCase& which : all_cases(ranks)) {
            Schedule schedule;
            Workload work = which.work;
            if (work.recipe.ring > 1) work.ring_rank = 1;
            build_attention_step(work, schedule);
            const bool moves = std::any_of(schedule.events.begin(), schedule.events.end(), [](const Event& event) {
                return event.kind == EventKind::collective || event.kind == EventKind::copy;
            });
            if (!moves) continue;
            CAPTURE(which.name);
            for (Event& event : schedule.events) {
                if (event.kind == EventKind::wait) event.id = schedule.syncs;  // never recorded
            }
            struct Alone : HostDevice {
                using HostDevice::compute;
                using HostDevice::HostDevice;
                void compute(Stream, const Exchange&, const Addresses&) override {}
                void compute(Stream, const PassOn&, const Addresses&) override {}
            };
            HostRanks one(1, 1);
            Alone device(one, 0);
            Interpreter interpreter(schedule, 4, ranks, device);
            CHECK_THROWS_AS(for (const Segment& segment : schedule.segments) interpreter.run(segment), Error);
        }
    }
}

TEST_CASE("a schedule written to be run has the bytes of the one that is planned") {
    for (const int ranks : {1, 2, 4}) {
        for (const CheckCase& which : all_cases(ranks)) {
            CAPTURE(ranks);
            CAPTURE(which.name);
            Schedule described, planned;
            build_attention_step(which.work, described);
            build_attention_step(which.work, planned, false);
            MemoryReplay one, other;
            const MemoryProfile& run = one.run_expanded(described);
            const MemoryProfile& plan = other.run(planned);
            CHECK(run.device_peak == plan.device_peak);
            CHECK(run.pinned_peak == plan.pinned_peak);
            CHECK(planned.descriptions.empty());
        }
    }
}

TEST_CASE("what a launch computes is as large as the plan has it") {
    for (const CheckCase& which : all_cases(4)) {
        CAPTURE(which.name);
        Schedule schedule;
        Workload work = which.work;
        if (work.recipe.ring > 1) work.ring_rank = 1;
        build_attention_step(work, schedule);
        std::vector<std::int64_t> size(schedule.events.size());
        for (const Description& description : schedule.descriptions) {
            std::int64_t& sum = size[description.event];
            const auto add = [&](const auto& moves) {
                for (const Move& move : moves) sum += move.bytes;
            };
            if (const auto* p = std::get_if<Product>(&description.computation)) sum += p->m * p->n * p->k * p->batch;
            if (const auto* e = std::get_if<Exchange>(&description.computation)) sum += e->move.bytes;
            if (const auto* p = std::get_if<PassOn>(&description.computation)) add(p->moves);
            if (const auto* t = std::get_if<Transfer>(&description.computation)) add(t->moves);
        }
        for (std::size_t i = 0; i < size.size(); ++i) {
            const Event& event = schedule.events[i];
            CAPTURE(event.name);
            if (event.kind == EventKind::gemm) CHECK(size[i] == event.gemm.m * event.gemm.n * event.gemm.k);
            if (event.kind == EventKind::collective) CHECK(size[i] == event.collective.bytes);
            if (event.kind == EventKind::copy) CHECK(size[i] == event.copy.bytes);
        }
    }
}

TEST_CASE("what cannot be run is refused by name") {
    const CheckCase ring = check_cases(2, small_model(), context, 4).front();
    const auto complaint = [](const Workload& work) -> std::string {
        Schedule schedule;
        try {
            build_attention_step(work, schedule);
        } catch (const Error& error) {
            return error.what();
        }
        return "none";
    };
    CHECK(complaint(ring.work) == "none");
    Workload work = ring.work;
    work.recipe.implementation = Implementation::untied_ulysses;
    CHECK(complaint(work).find("the untied-ulysses implementation cannot be run") != std::string::npos);
    work = ring.work;
    work.model.qk_norm = QkNorm::full_width;
    CHECK(complaint(work).find("QK norm over all heads at once") != std::string::npos);
    work = ring.work;
    work.model.qkv_bias = true;
    CHECK(complaint(work).find("biases") != std::string::npos);
    work = ring.work;
    work.recipe.batch = 2;
    CHECK(complaint(work).find("more than one sequence") != std::string::npos);
}

/// Forgets the log-sum-exp when it merges: a mistake that only methods with several key blocks make.
struct Forgetful : HostDevice {
    using HostDevice::compute;
    using HostDevice::HostDevice;
    void compute(Stream stream, const Merge& what, const Addresses& at) override {
        Merge wrong = what;
        wrong.first = true;
        HostDevice::compute(stream, wrong, at);
    }
};

TEST_CASE("the command fails for a machine that computes something else, and names the results") {
    CheckMachine machine = check_on_host();
    struct Ranks : CheckRanks {
        Ranks(int ulysses, int ring) : ranks(ulysses, ring) {}
        std::unique_ptr<ComputeDevice> device(int rank) override { return std::make_unique<Forgetful>(ranks, rank); }
        void give_up() override { ranks.give_up(); }
        std::string place() const override { return "threads"; }
        HostRanks ranks;
    };
    machine.open = [](int ulysses, int ring) { return std::make_unique<Ranks>(ulysses, ring); };
    CalibrateOptions options;
    options.check.ranks = {2};
    options.selection.only = {"ulysses"};
    CHECK(run_check(options, machine) == ExitCode::ok);  // one key block: nothing to merge
    TemporaryDirectory directory;
    options.selection.only = {"ring"};
    options.output = directory.path("check.jsonl");
    CHECK(run_check(options, machine) == ExitCode::failure);
    std::ifstream file(options.output);
    std::string provenance, line;
    std::getline(file, provenance);
    std::getline(file, line);
    CHECK(Json::parse(line)["status"].get<std::string>().find("wrong: output, dx") == 0);
}

TEST_CASE("headroom calibrate check: cases, ranks and what it says of wrong flags") {
    const Outcome right = run_headroom({"calibrate", "check", "--on-host", "--ranks", "2", "--only", "u*"});
    CHECK(right.status == 0);
    CHECK(right.out.find("5 of 5 cases compute attention and its gradients") != std::string::npos);
    const Outcome list = run_headroom({"calibrate", "check", "--list", "--on-host", "--ranks", "4", "--only", "usp*"});
    CHECK(list.status == 0);
    CHECK(list.out.find("usp 2x2") == 0);
    CHECK(run_headroom({"calibrate", "check", "--ranks", "0"}).status == 2);
    CHECK(run_headroom({"calibrate", "check", "--ranks", "2,"}).status == 2);
    const Outcome none = run_headroom({"calibrate", "check", "--on-host", "--only", "zigzag"});
    CHECK(none.status == 2);
    CHECK(none.err.find("no case is left") != std::string::npos);
}

TEST_CASE("the script for a whole node predicts its runs without a GPU") {
    const TemporaryDirectory directory;
    const std::string script = std::string(HEADROOM_TEST_DATA) + "/../../calibrate/whole_node.sh";
    const Outcome outcome = run_shell("HEADROOM=\"$HEADROOM\" \"" + script + "\" predict '" + directory.path() + "'");
    CHECK(outcome.status == 0);
    CHECK(outcome.err == "");
    const std::string text = read_file(directory.path("predictions.txt"));
    for (const char* name : {"upipe 2M U 8, 8x1", "usp 1M, 4x2", "ring 512K, 1x8", "fpdt 2M chunk 64K host, 8x1"}) {
        CHECK(text.find(name) != std::string::npos);
    }
    CHECK(run_shell("\"" + script + "\" nothing '" + directory.path() + "'").status == 2);
}

TEST_CASE("the cases of four ranks are all the ways to divide them") {
    std::vector<std::string> names;
    for (const CheckCase& which : check_cases(4, small_model(), context, 4)) names.push_back(which.name);
    CHECK(names == std::vector<std::string>{"ring", "usp 2x2", "ulysses", "upipe, U = 4 of 8", "upipe, U = 8 of 8",
                                            "fpdt, 1 chunk", "fpdt, 1 chunk offloaded", "fpdt, 2 chunks",
                                            "fpdt, 2 chunks offloaded", "fpdt, 3 chunks", "fpdt, 3 chunks offloaded",
                                            "fpdt, 4 chunks", "fpdt, 4 chunks offloaded"});
    names.clear();
    for (const CheckCase& which : check_cases(4, with_qk_norm(small_model()), context, 4)) names.push_back(which.name);
    CHECK(names == std::vector<std::string>{"ring, QK norm", "usp 2x2, QK norm", "ulysses, QK norm",
                                            "upipe, U = 4 of 8, QK norm", "fpdt, 2 chunks, QK norm",
                                            "fpdt, 2 chunks offloaded, QK norm"});
}

}  // namespace
}  // namespace headroom
