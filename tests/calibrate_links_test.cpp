// SPDX-License-Identifier: Apache-2.0
// Collectives, overlap and NCCL's memory: the fit finds what made the records, names what does not belong, and two fits
// are compared by the figures they give.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/compare.hpp"
#include "calibrate/fit.hpp"
#include "configs/calibration.hpp"
#include "configs/load.hpp"
#include "models/error.hpp"
#include "run_headroom.hpp"
#include "simulator/rates.hpp"

using namespace headroom;

namespace {

const std::string probes = std::string(HEADROOM_PROBES) + "/";

Json provenance(int gpus, int per_node) {
    Json gpu{{"name", "Made Up"}, {"memory_bytes", 100}, {"streaming_multiprocessors", 132}};
    return {{"record", "provenance"},
            {"schema", probe_file_schema},
            {"method_version", probe_method_version},
            {"gpus", Json::array({gpu})},
            {"driver", {{"version", "1"}}},
            {"libraries", Json::object()},
            {"host", {{"memory_bytes", 1000}}},
            {"context_bytes", 77},
            {"job", {{"gpus", gpus}, {"gpus_per_node", per_node}}},
            {"started", "2026-01-02T00:00:00Z"}};
}

/// `bytes`: of the tensor.
Json collective(const std::string& kind, double bytes, int ranks, int nodes, bool idle, double seconds) {
    const double sent = kind == "send_recv" ? bytes : bytes * (ranks - 1) / ranks;
    return {{"record", "probe"},
            {"name", fmt::format("collective/{}/{}/{}/{}/{}", kind, bytes, ranks, nodes, idle)},
            {"kind", "collective"},
            {"status", "ok"},
            {"settings",
             {{"collective", kind},
              {"bytes", bytes},
              {"ranks", ranks},
              {"nodes", nodes},
              {"stream", idle ? "idle" : "full"},
              {"bytes_sent", sent}}},
            {"seconds", {{"median", seconds}}},
            {"rate_per_second", sent / seconds}};
}

/// alpha + sent / rate on a factor-2 grid.
void add_collective(std::vector<Json>& records, const std::string& kind, int ranks, int nodes, double alpha,
                    double rate) {
    for (double bytes = 1 << 20; bytes <= 1 << 30; bytes *= 2) {
        const double sent = kind == "send_recv" ? bytes : bytes * (ranks - 1) / ranks;
        records.push_back(collective(kind, bytes, ranks, nodes, false, alpha + sent / rate));
        if (bytes == 1 << 20) records.push_back(collective(kind, bytes, ranks, nodes, true, 3 * alpha + sent / rate));
    }
}

FitResult fit_of(const std::vector<Json>& records, int gpus = 8, int per_node = 8) {
    std::string text = provenance(gpus, per_node).dump() + "\n";
    for (const Json& record : records) text += record.dump() + "\n";
    return fit_probes({parse_probe_file(text, "made-up.jsonl")});
}

const LinkFit& link(const FitResult& fit, CollectiveKind kind, int ranks) {
    for (const LinkFit& one : fit.links) {
        if (one.kind == kind && one.curve.ranks == ranks) return one;
    }
    throw Error("no such link");
}

Json overlap(bool collective_first, double attention, double other, double both, double beside, double other_beside) {
    return {{"record", "probe"},
            {"name", fmt::format("overlap/{}/{}", collective_first, both)},
            {"kind", "overlap"},
            {"status", "ok"},
            {"settings", {{"first", collective_first ? "collective" : "attention"}}},
            {"seconds", {{"median", both}}},
            {"rate_per_second", 1 / both},
            {"notes",
             {{"attention_alone_seconds", attention},
              {"collective_alone_seconds", other},
              {"attention_beside_seconds", beside},
              {"collective_beside_seconds", other_beside}}}};
}

}  // namespace

TEST_CASE("start-up and rate of each kind and group size come back") {
    std::vector<Json> records;
    add_collective(records, "all_to_all", 8, 1, 12e-6, 300e9);
    add_collective(records, "all_to_all", 2, 1, 9e-6, 340e9);
    add_collective(records, "send_recv", 2, 1, 10e-6, 360e9);
    const FitResult fit = fit_of(records);
    REQUIRE(fit.links.size() == 3);
    const LinkFit& eight = link(fit, CollectiveKind::all_to_all, 8);
    CHECK(eight.curve.alpha.value == doctest::Approx(12e-6).epsilon(1e-6));
    CHECK(eight.curve.alpha_idle.value == doctest::Approx(36e-6).epsilon(1e-6));
    CHECK(eight.curve.rate.value == doctest::Approx(300e9).epsilon(1e-6));
    CHECK(eight.line.worst < 1e-9);
    CHECK(eight.residuals.outliers.empty());
    CHECK(link(fit, CollectiveKind::send_recv, 2).curve.rate.value == doctest::Approx(360e9).epsilon(1e-6));

    // What is written is read: the simulator takes the group that was measured, the largest for others.
    const TemporaryDirectory directory;
    const Calibration base = load_calibration("h200");
    const Calibration read = load_calibration(directory.write("eight.yaml", calibration_text(fit, base, "h200")));
    const Collective op{CollectiveKind::all_to_all, CommGroup::ulysses, 64 << 20};
    CHECK(collective_seconds(read, op, {8, 8}) == doctest::Approx(12e-6 + (56 << 20) / 300e9).epsilon(0.01));
    CHECK(collective_seconds(read, op, {2, 2}) == doctest::Approx(9e-6 + (32 << 20) / 340e9).epsilon(0.01));
    CHECK(link_of(read, CollectiveKind::all_to_all, 4).ranks == 8);
    CHECK(read.links[1].rate.source == Source::derived);  // all-gather was not probed
}

TEST_CASE("a size far from its neighbours is named and left out; a failed probe is too") {
    std::vector<Json> records;
    add_collective(records, "all_gather", 2, 1, 5e-6, 280e9);
    for (Json& record : records) {
        if (record["settings"]["bytes"] == 64 << 20) record["seconds"]["median"] = 2e-3;
        if (record["settings"]["bytes"] == 128 << 20) {
            record["status"] = "failed";
            record["reason"] = "rank 1 waited";
        }
    }
    const FitResult fit = fit_of(records);
    REQUIRE(fit.links.size() == 1);
    REQUIRE(fit.links[0].residuals.outliers.size() == 1);
    CHECK(contains(fit.links[0].residuals.outliers[0], "collective/all_gather/67108864/2/1/false"));
    CHECK(fit.links[0].curve.rate.value == doctest::Approx(280e9).epsilon(1e-3));
    REQUIRE(fit.left_out.size() == 1);
    CHECK(contains(fit.left_out[0], "rank 1 waited"));
    std::reverse(records.begin(), records.end());
    const Calibration base = load_calibration("h200");
    CHECK(calibration_text(fit_of(records), base, "x") == calibration_text(fit, base, "x"));
}

TEST_CASE("across nodes the NICs' rate is what the part that leaves the node took") {
    std::vector<Json> records;
    add_collective(records, "all_to_all", 8, 1, 12e-6, 300e9);
    add_collective(records, "all_gather", 16, 2, 40e-6, 365e9);
    // 8 of the 15 peers of a rank are on the other node, through 48 GB/s.
    add_collective(records, "all_to_all", 16, 2, 37e-6, 48e9 * 15 / 8);
    const FitResult fit = fit_of(records, 16, 8);
    CHECK(fit.nic_rate.value == doctest::Approx(48e9).epsilon(1e-3));
    CHECK(fit.ring_rate.value == doctest::Approx(365e9).epsilon(1e-3));
    CHECK(fit.across_alpha.value == doctest::Approx(25e-6).epsilon(1e-3));
    CHECK(fit.gpus == 8);
    const TemporaryDirectory directory;
    const Calibration read =
        load_calibration(directory.write("many.yaml", calibration_text(fit, load_calibration("h200"), "h200")));
    CHECK(read.across_nodes.nic_rate.source == Source::measured);
    CHECK(read.links[0].ranks == 8);  // the table stays that of a node
}

TEST_CASE("overlap: what is exposed by launch order, and the processors a collective takes") {
    const FitResult fit =
        fit_of({overlap(true, 6e-3, 5e-3, 7e-3, 7e-3, 5e-3), overlap(false, 6e-3, 5e-3, 11e-3, 6e-3, 11e-3)});
    CHECK(fit.exposed_collective_first.value == doctest::Approx(0.2));
    CHECK(fit.exposed_attention_first.value == doctest::Approx(1.0));
    CHECK(fit.collective_share.value == doctest::Approx(0.2));  // 1 ms lost over the 5 ms it ran
}

TEST_CASE("NCCL's bytes by communicator become a cluster file") {
    const Json communicators = Json::array(
        {{{"use", "all ranks"}, {"initialisation", 200}, {"first_all_gather", 300}, {"first_reduce_scatter", 5}},
         {{"use", "ulysses"}, {"initialisation", 210}, {"first_all_to_all", 2800}},
         {{"use", "ring"}, {"initialisation", 210}, {"first_send_recv", 800}}});
    const FitResult fit = fit_of({{{"record", "probe"},
                                   {"name", "collective/memory/8"},
                                   {"kind", "collective_memory"},
                                   {"status", "ok"},
                                   {"settings", {{"ranks", 8}}},
                                   {"seconds", {{"median", 1}}},
                                   {"rate_per_second", 1},
                                   {"notes", {{"device_bytes", {{"communicators", communicators}}}}}}});
    CHECK(fit.memory.context == 77);
    CHECK(fit.memory.communicator == 505);
    CHECK(fit.memory.group == 210);
    CHECK(fit.memory.peer_buffer == 400);
    const TemporaryDirectory directory;
    const Cluster cluster = load_cluster(directory.write("node.yaml", cluster_text(fit, "h200")));
    CHECK(cluster.gpus_per_node == 8);
    CHECK(cluster.nccl_peer_buffer == Bytes{400});
    CHECK(cluster.cuda_context == load_cluster("h200").cuda_context);  // that of the program here is not a trainer's
}

TEST_CASE("the shipped files of one and two H200 are what the command makes of the shipped probes") {
    const TemporaryDirectory directory;
    const auto same = [&](const std::string& name, std::vector<std::string> files) {
        std::vector<std::string> words{"calibrate", "fit", "--base", "h200",
                                       "--name",    name,  "-o",     directory.path(name + ".yaml")};
        for (const std::string& file : files) words.push_back(probes + file + "-2026-11-30.jsonl");
        const Outcome outcome = run_headroom(words);
        CAPTURE(outcome.err);
        REQUIRE(outcome.status == 0);
        CHECK(read_file(directory.path(name + ".yaml")) == read_file(probes + "../../calibrations/" + name + ".yaml"));
    };
    same("h200-x1", {"h200-x1-mix"});
    same("h200-x2", {"h200-x2-mix-again", "h200-x2-mix"});
}

TEST_CASE("two runs of the whole plan agree within 2 %, or their spreads say why") {
    const TemporaryDirectory directory;
    const auto fitted = [&](const std::string& name) {
        const std::string path = directory.path(name + ".yaml");
        REQUIRE(run_headroom({"calibrate", "fit", probes + name + "-2026-11-30.jsonl", "--base", "h200", "-o", path})
                    .status == 0);
        return path;
    };
    const std::string one = fitted("h200-x2-mix"), two = fitted("h200-x2-mix-again");
    const auto list = differences(load_calibration(one), load_calibration(two));
    CHECK(list.size() > 50);
    CHECK(agree(list, 0.02));
    std::size_t apart = 0;
    for (const ConstantDifference& one_of : list) apart += std::abs(one_of.share()) > 0.02 ? 1 : 0;
    CHECK(apart <= 14);  // host memory of a virtual machine, clocks of two pairs of GPUs
    const Outcome outcome = run_headroom({"calibrate", "compare", one, two});
    CHECK(outcome.status == 0);
    CHECK(contains(outcome.out, "figures within 2 %"));
    CHECK_FALSE(contains(outcome.out, "beyond the spreads"));
}

TEST_CASE("a difference that no spread explains is listed as such and ends with status 1") {
    const TemporaryDirectory directory;
    std::string text = read_file(probes + "../../calibrations/h200-x2.yaml");
    const std::size_t at = text.find("copy_rate: {gb_per_s: ");
    REQUIRE(at != std::string::npos);
    text.replace(at, text.find('\n', at) - at,
                 "copy_rate: {gb_per_s: 3000, low: 2990, high: 3010, source: MEASURED, reference: \"x\"}");
    const Outcome outcome = run_headroom({"calibrate", "compare", "h200-x2", directory.write("b.yaml", text)});
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.out, "memory.copy_rate"));
    CHECK(contains(outcome.out, "beyond the spreads of both"));
    CHECK(run_headroom({"calibrate", "compare", "h200-x2"}).status == 2);
    CHECK(run_headroom({"calibrate", "compare", "h200-x2", "h200-x2", "--tolerance", "2"}).status == 2);
    const Outcome same = run_headroom({"calibrate", "compare", "h200-x2", "h200-x2"});
    CHECK(same.status == 0);
}
