// SPDX-License-Identifier: Apache-2.0
// Schedules executed on a device that only takes note: order, bytes, and what happens when something fails.
#include <doctest/doctest.h>

#include "calibrate/blocks_only.hpp"
#include "calibrate/runner.hpp"
#include "tests/fake_run_device.hpp"
#include "tests/named_arithmetic.hpp"
#include "tests/run_headroom.hpp"
#include "tests/scenario.hpp"

namespace headroom {

namespace {

/// Every lean method, on two layers' worth of segments: first, middle and last block.
std::vector<Workload> lean_workloads() {
    std::vector<Workload> works;
    const auto add = [&](Method method, auto change) {
        Scenario scenario(method, 256 * kibi);
        scenario.cluster.gpus_per_node = 4;
        scenario.model.layers = 4;
        scenario.settings.implementation = Implementation::lean;
        scenario.settings.attention_kernel = AttentionKernel::cudnn;
        scenario.settings.sharding_strategy = ShardingStrategy::fsdp;
        change(scenario.settings);
        for (const RingRole role : {RingRole::first, RingRole::later}) works.push_back(scenario.workload(role));
    };
    const auto nothing = [](Settings&) {};
    add(Method::ulysses, nothing);
    add(Method::ulysses, [](Settings& s) { s.checkpointing = Checkpointing::none; });
    add(Method::ring, nothing);
    add(Method::usp, [](Settings& s) { s.ulysses = 2; });
    add(Method::native, nothing);
    for (const int heads : {4, 8, 16, 32}) add(Method::upipe, [&](Settings& s) { s.heads_per_stage = heads; });
    add(Method::upipe, [](Settings& s) { s.ulysses = 2; });
    for (const bool offload : {true, false}) {
        for (const std::int64_t chunk : {16 * kibi, 64 * kibi}) {
            add(Method::fpdt, [&](Settings& s) {
                s.offload_chunks = offload;
                s.chunk_tokens = Tokens{chunk};
            });
        }
    }
    return works;
}

std::string name_of(const Workload& work) {
    return fmt::format("{} {}x{} U {} chunk {} offload {} {}", to_string(work.recipe.method), work.recipe.ulysses,
                       work.recipe.ring, work.recipe.heads_per_stage, work.recipe.chunk_tokens.value,
                       work.recipe.offload.chunks, work.role == RingRole::first ? "first" : "later");
}

Error error_of(ScheduleRunner& runner) {
    try {
        runner.set_up();
        runner.step();
    } catch (const Error& error) {
        return error;
    }
    FAIL("nothing was thrown");
    return Error("");
}

/// Says what it would compute, with addresses as distances from the tensor's beginning.
class ComputingRunDevice : public FakeRunDevice, private NamedArithmetic {
 public:
    std::vector<std::string> computed;
    void launch(const StreamLaunch& launch) override { launch.compute(*this); }

 private:
    void note(const char* name, const Addresses& at, std::size_t views) override {
        std::string line = name;
        for (std::size_t i = 0; i < views; ++i)
            line += fmt::format(" {}", reinterpret_cast<std::uintptr_t>(at[i]) % 4096);
        computed.push_back(line);
    }
};

/// A state, then two repetitions that call a routine and loop.
Schedule small_schedule() {
    Schedule schedule;
    Builder to(schedule);
    const RoutineId routine = to.routine(Phase::forward, [&] {
        const TensorId inner = to.allocate("inner", Group::mlp, Bytes{100});
        to.memory_bound("move", MemoryKernel::copy, Bytes{8}, Bytes{8});
        to.phase(Phase::recompute);
        to.release(inner);
    });
    to.segment("states", Phase::setup);
    to.allocate("weights", Group::states, Bytes{1000});
    to.segment("blocks", Phase::forward, 2);
    to.call(routine);
    to.loop(2, [&] { to.gemm("product", 8, 8, 8); });
    to.wait(Stream::ring, to.record(Stream::compute));
    to.host_wait("settle", Stream::ring);
    to.finish();
    return schedule;
}

}  // namespace

TEST_CASE("events are executed in program order, calls, loops and repetitions written out") {
    const Schedule schedule = small_schedule();
    FakeRunDevice device;
    device.logs = true;
    ScheduleRunner runner(schedule, device);
    runner.set_up();
    CHECK(device.log == std::vector<std::string>{"segment 0.0", "allocate weights 1000"});
    device.log.clear();
    runner.step();
    std::vector<std::string> expected;
    for (const char* repetition : {"0", "1"}) {
        for (const char* line : {"allocate inner 100", "move on compute in forward", "release inner 100",
                                 "product on compute in recompute", "product on compute in recompute",
                                 "record compute 0", "ring waits 0", "host waits ring"}) {
            if (std::string(line).starts_with("allocate")) expected.push_back(std::string("segment 1.") + repetition);
            expected.emplace_back(line);
        }
    }
    CHECK(device.log == expected);
    CHECK(runner.memory().device_peak.value == 1024 + 512);
    CHECK(runner.memory().segments[0].value == 1024);
    device.log.clear();
    runner.clear();
    CHECK(device.log == std::vector<std::string>{"release weights 1000"});
    CHECK(device.addresses.empty());
}

TEST_CASE("the bytes of a lean step are those the planner replays, for every method and at every step") {
    MemoryReplay replay;
    Schedule schedule;
    for (const Workload& work : lean_workloads()) {
        CAPTURE(name_of(work));
        build_training_step(work, schedule);
        const MemoryProfile& predicted = replay.run(schedule);
        FakeRunDevice device;
        ScheduleRunner runner(schedule, device);
        runner.set_up();
        for (int step = 0; step < 2; ++step) {
            runner.step();
            CHECK(runner.memory().device_peak == predicted.device_peak);
            CHECK(runner.memory().at.segment == predicted.at.segment);
            CHECK(runner.memory().at.phase == predicted.at.phase);
        }
        for (std::size_t i = 0; i < schedule.segments.size(); ++i) {
            Bytes most;
            for (const PhasePeak& peak : predicted.segments[i]) most = std::max(most, peak.device);
            if (most.value > 0) CHECK(runner.memory().segments[i] >= most);
        }
        CHECK(runner.memory().pageable_peak == predicted.pageable_peak);
        CHECK(runner.memory().pinned_peak <= predicted.pinned_peak);  // exact against powers of two
        runner.clear();
        CHECK(device.addresses.empty());
        CHECK(device.released_unknown == 0);
        CHECK(device.held == 0);
    }
}

TEST_CASE("ranks of different ring roles meet in the same collectives") {
    Schedule schedule;
    std::vector<std::string> first;
    for (const Workload& work : lean_workloads()) {
        CAPTURE(name_of(work));
        build_training_step(work, schedule);
        FakeRunDevice device;
        ScheduleRunner runner(schedule, device);
        runner.set_up();
        runner.step();
        CHECK_FALSE(device.collectives.empty());
        if (work.role == RingRole::first) {
            first = device.collectives;
        } else {
            CHECK(device.collectives == first);
        }
    }
}

TEST_CASE("out of memory names tensor, bytes and place, and leaves nothing behind") {
    const Workload work = lean_workloads().front();
    Schedule schedule;
    build_training_step(work, schedule);
    FakeRunDevice device;
    std::int64_t peak = 0;
    {
        ScheduleRunner runner(schedule, device);
        runner.set_up();
        runner.step();
        peak = runner.memory().device_peak.value;
    }
    // Everything from the states alone to just under the peak.
    for (const std::int64_t capacity : {std::int64_t{1}, peak / 4, peak / 2, peak - 4096}) {
        CAPTURE(capacity);
        device.capacity = capacity;
        ScheduleRunner runner(schedule, device);
        const Error error = error_of(runner);
        CHECK(error.exit_code() == ExitCode::does_not_fit);
        CHECK(contains(error.what(), "out of device memory: '"));
        CHECK(contains(error.what(), " bytes ("));
        CHECK(contains(error.what(), "GiB are free"));
        CHECK_FALSE(error.where().empty());
        CHECK(device.addresses.empty());
        CHECK(device.held == 0);
    }
    device.capacity = 1;
    ScheduleRunner runner(schedule, device);
    CHECK(error_of(runner).where() == "states, setup");
    device.capacity = -1;  // and the runner can be used again
    runner.set_up();
    runner.step();
    CHECK(runner.memory().device_peak.value == peak);
}

TEST_CASE("a launch that fails is named with its place, and everything is freed") {
    Schedule schedule;
    build_training_step(lean_workloads().front(), schedule);
    FakeRunDevice device;
    device.fails_at = "attention backward";
    ScheduleRunner runner(schedule, device);
    const Error error = error_of(runner);
    CHECK(std::string(error.what()) == "the kernel broke");
    CHECK(error.where() == "'attention backward' in last block, backward");
    CHECK(error.exit_code() == ExitCode::failure);
    CHECK(device.addresses.empty());
    CHECK(device.settled > 0);
}

TEST_CASE("a launch computes what its descriptions say, on the tensors that are alive") {
    Schedule schedule;
    Builder to(schedule);
    to.describe();
    to.segment("step", Phase::forward);
    const TensorId a = to.allocate("a", Group::mlp, Bytes{64});
    const TensorId b = to.allocate("b", Group::mlp, Bytes{64});
    to.memory_bound("sums", MemoryKernel::eager, Bytes{8}, Bytes{8}, 2);
    to.computes(Sum{View(a) + 16, b, b, 8});
    to.computes(AddTo{b, a, 4});
    to.release(a, b);
    to.finish();
    ComputingRunDevice device;
    ScheduleRunner runner(schedule, device);
    runner.step();
    CHECK(device.computed == std::vector<std::string>{"Sum 16 0 0", "AddTo 0 0"});

    Schedule silent = schedule;
    silent.descriptions.clear();
    ScheduleRunner second(silent, device);
    const Error error = error_of(second);
    CHECK(std::string(error.what()) == "the launch does not say what it computes");
    CHECK(error.where() == "'sums' in step, forward");

    Schedule dead = schedule;
    dead.descriptions.back().computation = AddTo{dead.tensors + 1, a, 4};
    ScheduleRunner third(dead, device);
    CHECK(contains(error_of(third).what(), "not alive"));
    CHECK(device.addresses.empty());
}

TEST_CASE("misuse in a schedule is an error, not a crash") {
    const auto run = [](auto write) {
        Schedule schedule;
        Builder to(schedule);
        to.segment("step", Phase::forward);
        write(to);
        to.finish();
        FakeRunDevice device;
        ScheduleRunner runner(schedule, device);
        const Error error = error_of(runner);
        CHECK(device.addresses.empty());
        CHECK(error.exit_code() == ExitCode::failure);
        return std::string(error.what());
    };
    CHECK(contains(run([](Builder& to) {
                       const TensorId tensor = to.allocate("a", Group::mlp, Bytes{8});
                       to.release(tensor, tensor);
                   }),
                   "not alive"));
    CHECK(contains(run([](Builder& to) { to.allocate("a", Group::mlp, Bytes{-8}); }), "allocates -8 bytes"));
    CHECK(contains(run([](Builder& to) { to.allocate("kept", Group::mlp, Bytes{8}); }),
                   "1 tensors outlive the step, such as 'kept'"));
    CHECK(contains(run([](Builder& to) {
                       const SyncId sync = to.record(Stream::ring);
                       to.wait(Stream::compute, sync + 0);
                       to.segment("next", Phase::forward);
                       to.wait(Stream::compute, to.record(Stream::compute));
                       to.allocate("kept", Group::mlp, Bytes{8});
                   }),
                   "outlive"));
}

TEST_CASE("a tensor of no bytes asks the device for nothing") {
    Schedule schedule;
    Builder to(schedule);
    to.segment("step", Phase::forward);
    const TensorId outer = to.allocate("a", Group::mlp, Bytes{8});
    to.allocate_again(outer, "a", Group::mlp, Bytes{0});
    to.release(outer, outer);
    to.finish();
    FakeRunDevice device;
    device.logs = true;
    ScheduleRunner runner(schedule, device);
    runner.set_up();
    runner.step();
    CHECK(device.log == std::vector<std::string>{"segment 0.0", "allocate a 8", "release a 8"});
}

TEST_CASE("blocks alone still say what they compute, and are given numbers where the rest of the step is cut off") {
    Scenario scenario(Method::ulysses, 256 * kibi);
    scenario.cluster.gpus_per_node = 4;
    scenario.model.layers = 3;
    scenario.settings.implementation = Implementation::lean;
    scenario.settings.attention_kernel = AttentionKernel::cudnn;
    scenario.settings.sharding_strategy = ShardingStrategy::fsdp;
    const Workload work = scenario.workload();
    Schedule schedule;
    const StepTensors tensors = build_described_step(work, schedule);
    const Schedule blocks = blocks_only(schedule, tensors.parameters);
    std::size_t launches = 0;
    std::map<TensorId, std::int64_t> given;
    for (std::uint32_t i = 0; i < blocks.events.size(); ++i) {
        const Event& event = blocks.events[i];
        if (event.kind < EventKind::gemm || event.kind > EventKind::copy) continue;
        ++launches;
        CAPTURE(event.name);
        CHECK_FALSE(described(blocks, i).empty());
        if (std::string(event.name) != "numbers for the blocks") continue;
        for (const Description& one : described(blocks, i)) {
            const auto& convert = std::get<Convert>(one.computation);
            CHECK(convert.from.tensor == tensors.parameters);
            CHECK(convert.to.offset == 2 * given[convert.to.tensor]);
            given[convert.to.tensor] += convert.elements;
        }
    }
    CHECK(launches > 100);
    CHECK(given.size() == 2);  // the input of the first block, the gradient of the last one's output
    for (const auto& [tensor, elements] : given) CHECK(2 * elements == work.hidden.value);
}

TEST_CASE("blocks alone keep every launch of a block and none around it") {
    Schedule schedule;
    for (const Workload& work : lean_workloads()) {
        CAPTURE(name_of(work));
        build_training_step(work, schedule);
        const Schedule blocks = blocks_only(schedule);
        FakeRunDevice whole, part;
        whole.logs = part.logs = true;
        ScheduleRunner whole_runner(schedule, whole), part_runner(blocks, part);
        for (ScheduleRunner* runner : {&whole_runner, &part_runner}) {
            runner->set_up();
            runner->step();
        }
        const auto launches = [](const FakeRunDevice& device, const std::string& start) {
            std::int64_t count = 0;
            for (const std::string& line : device.log) count += line.starts_with(start + " on ") ? 1 : 0;
            return count;
        };
        for (const char* name : {"attention", "attention backward", "MLP in", "MLP out, weight gradient",
                                 "reduce-scatter block", "gather block", "offload block input"}) {
            CHECK(launches(part, name) == launches(whole, name));
        }
        CHECK(launches(whole, "attention") > 0);
        for (const char* name : {"head", "cross-entropy", "embedding", "clip and AdamW", "gather root"}) {
            CHECK(launches(part, name) == 0);
        }
        CHECK(launches(whole, "clip and AdamW") == 1);
        CHECK(part_runner.memory().device_peak <= whole_runner.memory().device_peak);
        CHECK(part_runner.memory().device_peak.value > 0);
    }
}

}  // namespace headroom
