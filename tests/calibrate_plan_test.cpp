// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "calibrate/options.hpp"
#include "calibrate/plan.hpp"
#include "models/error.hpp"
#include "run_headroom.hpp"

using namespace headroom;

TEST_CASE("every probe has its own name, and fits the time and memory it states") {
    std::set<std::string> names;
    for (const Probe& probe : all_probes({})) {
        CAPTURE(probe.name);
        CHECK(names.insert(probe.name).second);
        CHECK(estimated_seconds(probe) > 0);
        CHECK(amount_of(probe.work).value > 0);
        CHECK(probe.device_memory <= Bytes{120 * gibi});
        CHECK_FALSE(settings_of(probe.work).empty());
    }
    for (const char* kind : {"attention/", "gemm/", "host/copy/to_host/fresh/", "host/gap/", "kernel/"}) {
        const auto begins = [&](const std::string& name) { return name.starts_with(kind); };
        CHECK(std::any_of(names.begin(), names.end(), begins));
    }
    // An overlap, and a probe of each kernel once more under CUPTI.
    CHECK(names.contains("overlap/forward/copy_to_host"));
    CHECK(names.contains("cupti/kernel/copy/128Kx4096"));
    CHECK(names.contains("attention/backward/causal/1M/1x1/128"));
    CHECK(names.contains("gemm/14336x4096/512K"));
}

TEST_CASE("all probes of a node end within three minutes, whatever its GPUs") {
    for (const int gpus : {1, 2, 4, 6, 8}) {
        CAPTURE(gpus);
        PlanMachine machine;
        machine.gpus = gpus;
        CHECK(plan_probes(machine, {}).seconds < 180);
    }
}

TEST_CASE("what decides most comes first, so that a budget keeps it") {
    PlanMachine machine;
    machine.gpus = 8;
    const ProbePlan plan = plan_probes(machine, {{}, {}, 60});
    REQUIRE_FALSE(plan.probes.empty());
    const auto count = [&](const char* kind) {
        return std::count_if(plan.probes.begin(), plan.probes.end(),
                             [&](const Probe& probe) { return probe.name.starts_with(kind); });
    };
    CHECK(count("attention/forward/") > 10);
    CHECK(count("attention/backward/") > 10);
    CHECK(count("kernel/") == 0);
}

TEST_CASE("across nodes a group says on how many it stands, and a node's copies stay the node's") {
    PlanMachine machine;
    machine.gpus = 16;
    machine.gpus_per_node = 8;
    std::set<std::string> names;
    for (const Probe& probe : all_probes(machine)) {
        names.insert(probe.name);
        if (const auto* copy = std::get_if<HostCopyProbe>(&probe.work)) CHECK(copy->gpus <= 8);
        if (const auto* one = std::get_if<CollectiveProbe>(&probe.work)) CHECK(one->nodes == (one->ranks > 8 ? 2 : 1));
    }
    CHECK(names.contains("collective/all_gather/64MiB/16in2nodes/full"));
    CHECK(names.contains("collective/memory/8"));
}

TEST_CASE("globs choose, and one that matches nothing is refused") {
    const ProbePlan plan = plan_probes({}, {{"gemm/*/2K", "host/gap/*"}, {"*/1024x*"}, 0});
    CHECK_FALSE(plan.probes.empty());
    for (const Probe& probe : plan.probes) {
        const bool gemm = probe.name.starts_with("gemm/") && probe.name.ends_with("/2K");
        CHECK((gemm || probe.name.starts_with("host/gap/")));
        CHECK_FALSE(contains(probe.name, "/1024x"));
    }
    CHECK_THROWS_AS(plan_probes({}, {{"gem/*"}, {}, 0}), Error);
    CHECK_THROWS_AS(plan_probes({}, {{}, {"nothing"}, 0}), Error);
}

TEST_CASE("collectives appear with the GPUs for them, by group sizes up to all") {
    CHECK(plan_probes({}, {{"collective/*"}, {}, 0}).probes.empty());  // one GPU: nothing to run, but no mistake
    PlanMachine six;
    six.gpus = 6;
    std::set<std::string> names;
    for (const Probe& probe : all_probes(six)) names.insert(probe.name);
    for (const char* size : {"2", "4", "6"}) {
        CHECK(names.contains(std::string("collective/all_to_all/1MiB/") + size + "/idle"));
        CHECK(names.contains(std::string("collective/memory/") + size));
    }
    CHECK(names.contains("overlap/forward/send_recv/collective_first"));
    CHECK_FALSE(names.contains("collective/memory/8"));
}

TEST_CASE("a budget cuts what does not fit, memory what is too large, and both are named") {
    const ProbePlan plan = plan_probes({}, {{"gemm/*"}, {}, 10});
    CHECK(plan.seconds <= 10);
    CHECK_FALSE(plan.probes.empty());
    CHECK_FALSE(plan.cut.empty());
    CHECK(contains(dry_run_text(plan), "not run, beyond --budget: " + plan.cut.back().name));

    PlanMachine small;
    small.device_memory = Bytes{8 * gibi};
    const ProbePlan cramped = plan_probes(small, {{"gemm/*/512K"}, {}, 0});
    REQUIRE_FALSE(cramped.too_big.empty());
    CHECK(contains(dry_run_text(cramped), "too large for this machine: gemm/14336x4096/512K"));
    small.cpu_threads = 4;
    for (const Probe& probe : all_probes(small)) {
        if (const auto* copy = std::get_if<HostCopyProbe>(&probe.work)) CHECK(copy->threads <= 4);
    }
}

TEST_CASE("the command line lists and estimates without a GPU") {
    const Outcome list = run_headroom({"calibrate", "probes", "--list", "--only", "host/gap/*"});
    CHECK(list.status == 0);
    CHECK(lines_of(list.out).front() == "host/gap/launch");
    const Outcome plan = run_headroom({"calibrate", "probes", "--dry-run", "--only=gemm/256x4096/*"});
    CHECK(plan.status == 0);
    CHECK(contains(plan.out, "4 probes, at most"));
    const Outcome eight = run_headroom({"calibrate", "probes", "--dry-run", "--gpus", "8", "--only", "collective/*"});
    CHECK(eight.status == 0);
    CHECK(contains(eight.out, "collective/all_to_all/2GiB/8/full"));
    const Outcome many = run_headroom({"calibrate", "probes", "--list", "--gpus=16"});
    CHECK(contains(many.out, "collective/all_gather/1GiB/16in2nodes/full"));
    const Outcome help = run_headroom({"calibrate", "--help"});
    CHECK(help.status == 0);
    CHECK(contains(help.out, "--resume FILE"));
}

TEST_CASE("what is wrong on the command line is said, with the flag") {
    const auto refuse = [](const std::vector<std::string>& words, std::string_view part) {
        const Outcome outcome = run_headroom(words);
        CAPTURE(outcome.err);
        CHECK(outcome.status == 2);
        CHECK(contains(outcome.err, part));
    };
    refuse({"calibrate"}, "no action is given");
    refuse({"calibrate", "probe"}, "unknown action 'probe'");
    refuse({"calibrate", "probes", "--olny", "x"}, "unknown flag --olny");
    refuse({"calibrate", "probes", "--only"}, "--only needs a value");
    refuse({"calibrate", "probes", "--list=yes"}, "--list takes no value");
    refuse({"calibrate", "probes", "--budget", "-3"}, "no number of seconds");
    refuse({"calibrate", "probes", "--dry-run", "--gpus", "0"}, "no number from 1 to 1000");
    refuse({"calibrate", "probes", "--gpus", "8"}, "are those of the machine");
    refuse({"calibrate", "probes", "--list", "extra"}, "unexpected argument 'extra'");
    refuse({"calibrate", "probes", "--resume", "a", "-o", "b"}, "--resume goes on in its own file");
    refuse({"calibrate", "probes", "--list", "--only", "nope*"}, "no probe is called 'nope*'");
    refuse({"calibrate", "fit"}, "no probe file is named");
}

TEST_CASE("without a GPU, or without the sub-program, one line says what is missing") {
    const Outcome outcome = run_headroom({"calibrate", "probes"}, {"PATH=/nonexistent", "CUDA_VISIBLE_DEVICES="});
    CHECK(outcome.status == 1);
    const bool no_program = contains(outcome.err, "built only where a CUDA toolkit is installed");
    const bool no_gpu = contains(outcome.err, "cudaErrorInsufficientDriver (35)") ||
                        contains(outcome.err, "cudaErrorNoDevice (100)") ||
                        contains(outcome.err, "cannot open shared object file");
    CAPTURE(outcome.err);
    CHECK((no_program || no_gpu));
}
