// SPDX-License-Identifier: Apache-2.0
// Claim: what others measured comes out. Every published run that can be expressed gets the right verdict, or stands in
// the list of those that do not, with the reason; the figures of the UPipe paper come out to a per cent.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "configs/measurement.hpp"
#include "models/error.hpp"
#include "planner/validate.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

/// Known to be wrong today. An entry that comes right must leave the list, or the test fails.
struct KnownWrong {
    const char* id;
    const char* reason;
};
const KnownWrong known_wrong[]{
    {"hf-ul-4-128K-mem",
     "66 of 76 GiB predicted, 81 GB wanted: the published figures have 14 bytes a parameter more on "
     "the GPU than optimizer offload leaves there"},
    {"arctic-20-max",
     "30 GB outside the allocator: an all-to-all buffer of 469 MB for each of 63 peers, 56 of them on "
     "other nodes"},
    {"arctic-20-mem", "as arctic-20-max"},
    {"arctic-22-max",
     "2.6 % too much: an untiled MLP counts 6 FFN-wide tensors, Liger's SwiGLU has 4; and a copy of "
     "the attention output is counted on a single GPU"},
    {"arctic-22-mem", "as arctic-22-max"},
    {"arctic-23-max", "8 % too much: as arctic-22-max"},
    {"arctic-23-mem", "as arctic-22-max"},
    {"trl-Qwen3-0.6B-4M-8-t",
     "95 GiB predicted, 73.7 GB shown: K and V are gathered for all query heads, upstream "
     "gathers KV heads"},
    {"trl-Qwen3-0.6B-4M-8-mem", "as trl-Qwen3-0.6B-4M-8-t"},
    {"trl-Qwen3-8B-4M-32-t", "104 GiB predicted: as trl-Qwen3-0.6B-4M-8-t, over 32 ranks"},
};

const KnownWrong* known(const std::string& id) {
    const auto* found = std::find_if(std::begin(known_wrong), std::end(known_wrong),
                                     [&](const KnownWrong& entry) { return id == entry.id; });
    return found == std::end(known_wrong) ? nullptr : found;
}

std::vector<Measurement> all_published() {
    std::vector<Measurement> all;
    for (const std::string& set : builtin_measurement_sets()) {
        for (Measurement& run : builtin_measurements(set)) all.push_back(std::move(run));
    }
    return all;
}

const Validation& published() {
    static const Validation validation = validate(all_published());
    return validation;
}

double percent(double predicted, double measured) { return 100 * (predicted - measured) / measured; }

double in_gib_of(const Comparison& row) { return *row.predicted; }

const Comparison& row(const std::string& id) {
    for (const Comparison& comparison : published().comparisons) {
        if (comparison.measured.id == id) return comparison;
    }
    throw Error("no such entry: " + id);
}

}  // namespace

TEST_CASE("no run that worked is refused, and no run that failed for memory is accepted") {
    std::size_t checked = 0, outside = 0;
    for (const Comparison& comparison : published().comparisons) {
        if (comparison.agreement == Agreement::unchecked) continue;
        ++checked;
        const std::string& id = comparison.measured.id;
        CAPTURE(id);
        CAPTURE(comparison.verdict);
        CHECK(comparison.valid);
        if (const KnownWrong* entry = known(id)) {
            ++outside;
            MESSAGE("outside: ", id, ": ", entry->reason);
            CHECK_MESSAGE(comparison.agreement != Agreement::right, "comes right now: take it off the list");
        } else {
            CHECK(comparison.agreement == Agreement::right);
        }
    }
    CHECK(outside == std::size(known_wrong));
    CHECK(checked > 120);  // 126 entries when this was written
}

TEST_CASE("Llama-3-8B on eight H100 at 3M: totals within 1 %, the paper's split within 2 %") {
    // Figure 'memory wall': Ulysses 64.6 = 15.0 + 33.0 + 16.6 GiB, UPipe 51.1 = 15.0 + 19.5 + 16.6.
    CHECK(std::abs(percent(in_gib_of(row("upipe-stack-5-total")), 64.6)) < 1);
    CHECK(std::abs(percent(in_gib_of(row("upipe-stack-6-total")), 51.1)) < 1);
    CHECK(std::abs(percent(in_gib_of(row("upipe-t4-8b-upipe-128K")), 21.1)) < 1);
    for (const char* part : {"model_states", "attention_activations", "other_activations"}) {
        for (const char* bar : {"upipe-stack-5-", "upipe-stack-6-"}) {
            const Comparison& comparison = row(std::string(bar) + part);
            CAPTURE(comparison.measured.id);
            CHECK(std::abs(percent(*comparison.predicted, *comparison.measured.value)) < 2);
        }
    }
}

TEST_CASE("the split adds up to the allocated peak, and its states are 16 bytes a parameter") {
    for (const Method method : {Method::ulysses, Method::upipe}) {
        const Plan plan = Scenario(method, 3 * 1024 * 1024).plan();
        const PaperSplit split = paper_split(plan);
        CHECK(split.states + split.attention + split.other == plan.device.peak);
        // fp32 master, two moments and gradient: 16 * 8,030,261,248 / 8 ranks
        CHECK(split.states.value == 16'060'522'496);
    }
    // UPipe's gain is all in attention: the rest stays as it was.
    const PaperSplit ulysses = paper_split(Scenario(Method::ulysses, 3 * 1024 * 1024).plan());
    const PaperSplit upipe = paper_split(Scenario(Method::upipe, 3 * 1024 * 1024).plan());
    CHECK(upipe.attention < ulysses.attention);
    CHECK(std::abs(percent(in_gib(upipe.other), in_gib(ulysses.other))) < 1);
}

TEST_CASE("whole steps on two H200: allocated within 0.1 %, reserved within 5 %, in use within 10 %") {
    std::size_t allocated = 0, reserved = 0, used = 0;
    for (const Comparison& comparison : published().comparisons) {
        if (comparison.measured.set != "official_2xh200" || !comparison.error_percent) continue;
        CAPTURE(comparison.measured.id);
        const double error = std::abs(*comparison.error_percent);
        switch (comparison.measured.metric.figure) {
            case Figure::peak_allocated:
                CHECK(error < 0.1);
                ++allocated;
                break;
            case Figure::peak_reserved:
                CHECK(error < 5);
                ++reserved;
                break;
            case Figure::device_used:
                CHECK(error < 10);
                ++used;
                break;
            default:
                break;
        }
    }
    CHECK(allocated == 3);
    CHECK(reserved == 3);
    CHECK(used == 3);
}

TEST_CASE("ZeRO-3 without sequence parallelism, 64K to 256K on H200 and B200: within 5 %") {
    // stas00/ml-engineering. Below 64K the fixed part of DeepSpeed's step decides, of which we miss about 5 GiB: the
    // bound there is the error that is measured now, not an aim.
    for (const char* id :
         {"mleng-h200-64K-peak_memory_gib", "mleng-h200-128K-peak_memory_gib", "mleng-h200-192K-peak_memory_gib",
          "mleng-h200-256K-peak_memory_gib", "mleng-b200-64K-peak_memory_gib", "mleng-b200-192K-peak_memory_gib"}) {
        CAPTURE(id);
        CHECK(std::abs(*row(id).error_percent) < 5);
    }
    MESSAGE("outside 5 %: 8K ", *row("mleng-h200-8K-peak_memory_gib").error_percent, " %, 32K ",
            *row("mleng-b200-32K-peak_memory_gib").error_percent, " %");
    CHECK(std::abs(*row("mleng-h200-8K-peak_memory_gib").error_percent) < 35);
    CHECK(std::abs(*row("mleng-b200-32K-peak_memory_gib").error_percent) < 20);
}

TEST_CASE("host memory of offloaded checkpoints: 915 GiB a node for 70B at 3M over four nodes") {
    // 80 blocks * 3e6 * 8192 * 2 bytes / 4 nodes = 983,040,000,000 bytes = 915.5 GiB
    CHECK(*row("alst-70b-host").predicted == doctest::Approx(983'040'000'000.0 / gibi));
}

TEST_CASE("what is not expressed is listed, each with its reason") {
    CHECK_FALSE(published().not_expressed.empty());
    std::set<std::string> sources;
    for (const Measurement& run : all_published()) {
        sources.insert(run.set);
        CAPTURE(run.id);
        CHECK_FALSE(run.source.empty());
        CHECK(run.url.starts_with("https://"));
        CHECK_FALSE(run.location.empty());
        CHECK_FALSE(run.confidence.empty());
        CHECK((run.value.has_value() || run.status != RunStatus::ok));
        if (!run.not_expressed.empty()) CHECK(run.not_expressed.size() > 15);
    }
    CHECK(sources.size() == 18);
}

}  // namespace headroom
