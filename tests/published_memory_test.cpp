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

TEST_CASE("ZeRO-3 without sequence parallelism, 8K to 256K on H200 and B200: the slope is right, 5 GiB are missing") {
    // stas00/ml-engineering, reserved. From 8K to 256K 108.2 GiB more were seen; what is short is about the same at
    // every length, so it is a fixed part of DeepSpeed's step that we do not know. The bounds are what is measured now.
    const Comparison& shortest = row("mleng-h200-8K-peak_memory_gib");
    const Comparison& longest = row("mleng-h200-256K-peak_memory_gib");
    CHECK(std::abs(percent(*longest.predicted - *shortest.predicted, 124.5 - 16.3)) < 3);
    for (const char* id :
         {"mleng-h200-8K-peak_memory_gib", "mleng-b200-32K-peak_memory_gib", "mleng-h200-64K-peak_memory_gib",
          "mleng-h200-128K-peak_memory_gib", "mleng-h200-192K-peak_memory_gib", "mleng-h200-256K-peak_memory_gib"}) {
        const double missing = *row(id).measured.value - *row(id).predicted;
        MESSAGE("outside 5 %: ", id, " short by ", missing, " GiB, ", *row(id).error_percent, " %");
        CHECK(missing > 4);
        CHECK(missing < 7);
    }
}

TEST_CASE("ALST recipes on H100 and H200: in use within 8 %, half of them within 3 %") {
    int close = 0;
    for (const char* id : {"arctic-14-mem", "arctic-15-mem", "arctic-19-mem", "arctic-20-mem", "arctic-21-mem",
                           "arctic-22-mem", "arctic-23-mem", "arctic-24-mem"}) {
        CAPTURE(id);
        CHECK(std::abs(*row(id).error_percent) < 8);
        if (std::abs(*row(id).error_percent) < 3) ++close;
    }
    CHECK(close >= 4);
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
