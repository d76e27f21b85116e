// SPDX-License-Identifier: Apache-2.0
// What `headroom simulate` prints and draws, and the step times of the other commands.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/json_of.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

double total(const Json& list, const char* key) {
    double sum = 0;
    for (const Json& item : list) sum += item.at(key).get<double>();
    return sum;
}

Json traced(const Words& words) {
    const TemporaryDirectory directory;
    const std::string path = directory.path("trace.json");
    Words all{"simulate", "--trace", path};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = run_headroom(all);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(directory.names() == Words{"trace.json"});  // nothing half-written beside it
    return Json::parse(read_file(path));
}

std::vector<Json> events(const Json& trace, const std::string& phase) {
    std::vector<Json> found;
    for (const Json& event : trace.at("traceEvents")) {
        if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
}

const Words methods{"native", "ring", "ulysses", "usp", "fpdt", "upipe"};

}  // namespace

TEST_CASE("the JSON of a step keeps the names of the contract") {
    for (const std::string& method : methods) {
        CAPTURE(method);
        const Json json = json_of({"plan", "--method", method, "--context", "512K"});
        const Json& step = json["step"];
        const double seconds = step["seconds"].get<double>();
        CHECK(seconds > 0);
        CHECK(step["seconds_range"][0] < seconds);
        CHECK(step["seconds_range"][1] > seconds);
        const double rate = step["tokens_per_second_per_gpu"].get<double>();
        CHECK(rate == doctest::Approx(524288 / seconds / 8));
        CHECK(step["tokens_per_second_per_gpu_range"][0] < rate);
        CHECK(step["tokens_per_second_per_gpu_range"][1] > rate);
        CHECK(step["tokens_per_second"].get<double>() == doctest::Approx(8 * rate));
        CHECK(step["mfu"] > 0.1);
        CHECK(step["mfu"] < step["hfu"]);
        CHECK(contains(step["mfu_convention"].get<std::string>(), "causal attention counted half"));
        CHECK(step["parts"].size() == 10);
        CHECK(total(step["parts"], "exposed_seconds") == doctest::Approx(seconds));
        CHECK(json["calibration"]["name"] == "h100-sxm-80gb");
        CHECK(json["calibration"]["kind"] == "published");
    }
}

TEST_CASE("text and CSV give the time too") {
    const Json json = json_of({"plan", "--context", "1M"});
    const Outcome text = run_headroom({"plan", "--context", "1M"});
    CHECK(lines_of(text.out)[1].starts_with("step: "));
    for (const char* part : {" tokens/s/GPU (", "MFU ", "exposed", "attention", "all-to-all", "host copies", "HFU ",
                             "constants: h100-sxm-80gb (published)", "warning: step time outside"}) {
        CAPTURE(part);
        CHECK(contains(text.out, part));
    }
    const auto csv = lines_of(run_headroom({"plan", "--context", "1M", "--format", "csv"}).out);
    CHECK(contains(csv[0], ",step_seconds,step_seconds_low,step_seconds_high,tokens_per_second_per_gpu,"));
    CHECK(contains(csv[0], ",step_attention_seconds,step_attention_exposed_seconds,"));
    CHECK(csv[1].ends_with(",h100-sxm-80gb,published,false"));
    CHECK(csv[0].ends_with(",calibration,calibration_kind,inside_calibrated_domain"));
    const Json row = json_of({"max-context", "--method", "ulysses"})["methods"][0];
    CHECK(row["plan"]["step"]["seconds"] > 0);
    CHECK(row["plan"]["step"].size() == json["step"].size());
}

TEST_CASE("a recipe without rates is planned for memory, says why there is no time, and cannot be simulated") {
    const Words a100{"--cluster", "a100-sxm-80gb", "--context", "128K"};
    const auto with = [&](Words words) {
        words.insert(words.end(), a100.begin(), a100.end());
        return words;
    };
    const Json json = json_of(with({"plan", "--attention-kernel", "fa3"}));
    CHECK(json["step"].is_null());
    CHECK(json["calibration"].is_null());
    CHECK(json["device_memory"]["peak_bytes"] > 0);
    CHECK(contains(json["warnings"].back().get<std::string>(), "--attention-kernel fa2"));
    const Outcome outcome = run_headroom(with({"simulate", "--attention-kernel", "fa3"}));
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.err, "no rates for attention kernel fa3 (--attention-kernel)"));
    CHECK(contains(outcome.err, "try: use --attention-kernel fa2"));
    const Json derived = json_of(with({"plan", "--attention-kernel", "fa2"}));
    CHECK(derived["calibration"]["kind"] == "derived");
    CHECK(contains(derived["warnings"].dump(), "derived from another machine's"));
}

TEST_CASE("constants of another machine are taken when asked for, with a word about it; else the nearest are derived") {
    const Json named = json_of({"plan", "--cluster", "h200", "--context", "128K", "--calibration", "h100-sxm-80gb"});
    CHECK(named["calibration"]["name"] == "h100-sxm-80gb");
    CHECK(contains(named["warnings"].dump(), "was made for h100-sxm-80gb, not for h200"));
    const Json nearest = json_of({"plan", "--cluster", "h100-pcie-80gb", "--context", "128K"});
    CHECK(nearest["calibration"]["kind"] == "derived");
    CHECK(contains(nearest["warnings"].dump(), "derived from another machine's"));
    // Eight H200 were never measured together; two were.
    const Json eight = json_of({"plan", "--cluster", "h200", "--context", "128K", "--attention-kernel", "fa2"});
    CHECK(eight["calibration"]["name"] == "h200");
    CHECK(contains(eight["warnings"].dump(), "h200 are derived from another machine's"));
    const Json own = json_of({"plan", "--cluster", "h200-x2", "--context", "128K", "--attention-kernel", "fa2"});
    CHECK(own["calibration"]["name"] == "h200-x2");
    CHECK(!contains(own["warnings"].dump(), "derived from"));
}

TEST_CASE("flags about time that cannot be used are refused with their place") {
    const auto refused = [](const Words& words, const char* part) {
        const Outcome outcome = run_headroom(words);
        CAPTURE(outcome.err);
        CHECK(outcome.status == 2);
        CHECK(outcome.out.empty());
        CHECK(contains(outcome.err, part));
    };
    refused({"plan", "--context", "128K", "--calibration", "h1000"}, "(--calibration h1000)");
    refused({"plan", "--context", "128K", "--mfu", "half"}, "(--mfu)");
    refused({"simulate"}, "(--context)");
    refused({"simulate", "--context", "128K", "--layers", "2"}, "add --trace FILE");
    refused({"simulate", "--context", "128K", "--trace", "x.json", "--layers", "0"}, "(--layers)");
    refused({"simulate", "--context", "128K", "--trace", "/nowhere/x.json"}, "(--trace)");
    refused({"simulate", "--context", "128K", "--trace", "-"}, "(--trace)");
    refused({"simulate", "--context", "128K", "--trace", "a.json", "-o", "a.json"}, "name one file");
    CHECK(json_of({"plan", "--context", "128K", "--mfu", "full"})["step"]["mfu"] >
          json_of({"plan", "--context", "128K"})["step"]["mfu"]);
}

TEST_CASE("the summary adds up in every direction") {
    for (const std::string& method : methods) {
        CAPTURE(method);
        const Json json = json_of({"simulate", "--method", method, "--context", "256K"});
        CHECK(json["schema_version"] == 1);
        const double seconds = json["step"]["seconds"].get<double>();
        const Json& timeline = json["timeline"];
        CHECK(total(timeline["phases"], "seconds") == doctest::Approx(seconds));
        CHECK(total(timeline["operations"], "seconds") >= doctest::Approx(total(json["step"]["parts"], "seconds")));
        double blocks = 0;
        std::int64_t count = 0;
        for (const Json& block : timeline["blocks"]) {
            const auto each = block["count"].get<std::int64_t>();
            count += each;
            blocks += static_cast<double>(each) *
                      (block["forward_seconds"].get<double>() + block["recompute_seconds"].get<double>() +
                       block["backward_seconds"].get<double>());
        }
        CHECK(count == 32);
        CHECK(blocks < seconds);
        CHECK(blocks > 0.9 * seconds);
        CHECK(json["step"] == json_of({"plan", "--method", method, "--context", "256K"})["step"]);
    }
    const Outcome text = run_headroom({"simulate", "--context", "256K"});
    CHECK(text.status == 0);
    for (const std::string& line : lines_of(text.out)) CHECK(line.size() <= 80);
    for (const char* part :
         {"By phase", "recompute", "By block", "middle blocks", "Longest operations", "all-to-all"}) {
        CHECK(contains(text.out, part));
    }
    const auto csv = lines_of(run_headroom({"simulate", "--context", "256K", "--format", "csv"}).out);
    CHECK(csv[0] == "operation,part,count,seconds,seconds_each,share_of_step");
    CHECK(csv.size() > 20);
}

TEST_CASE("the trace is one that Perfetto loads: named tracks, time in order, slices side by side") {
    for (const std::string& method : methods) {
        CAPTURE(method);
        const Json trace = traced({"--method", method, "--context", "256K", "--layers", "2"});
        CHECK(trace["displayTimeUnit"] == "ms");
        std::map<int, std::string> tracks;
        for (const Json& event : events(trace, "M")) {
            if (event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
            if (event["name"] == "process_name") {
                CHECK(event["args"]["name"].get<std::string>().starts_with("rank "));
            }
        }
        std::map<int, double> ends;
        std::set<std::string> used;
        for (const Json& slice : events(trace, "X")) {
            const int track = slice["tid"];
            REQUIRE(tracks.contains(track));
            used.insert(tracks[track]);
            CHECK(slice["ts"].get<double>() >= ends[track] - 1e-6);  // microseconds: less than any printed digit
            CHECK(slice["dur"].get<double>() >= 0);
            CHECK(!slice["name"].get<std::string>().empty());
            ends[track] = slice["ts"].get<double>() + slice["dur"].get<double>();
        }
        CHECK(used.contains("compute"));
        CHECK(used.contains("step"));

        std::map<std::string, double> last;
        std::map<std::string, double> largest;
        for (const Json& sample : events(trace, "C")) {
            const std::string name = sample["name"];
            CHECK(sample["ts"].get<double>() >= last[name]);
            last[name] = sample["ts"];
            largest[name] = std::max(largest[name], sample["args"]["GiB"].get<double>());
            CHECK(sample["args"]["GiB"].get<double>() >= 0);
        }
        CHECK(largest.contains("GPU memory: attention"));
        CHECK(largest["host memory of this rank"] > 0);
        std::map<int, Json> begun;
        for (const Json& flow : events(trace, "s")) begun[flow["id"]] = flow;
        CHECK(!begun.empty());
        for (const Json& flow : events(trace, "f")) CHECK(begun[flow["id"]]["ts"] <= flow["ts"]);
    }
}

TEST_CASE("a trace of all blocks lasts as long as the step and climbs as high as the memory peak") {
    const Json trace = traced({"--method", "upipe", "--context", "256K", "--layers", "32"});
    const Json plan = json_of({"plan", "--method", "upipe", "--context", "256K"});
    double end = 0;
    for (const Json& slice : events(trace, "X")) {
        end = std::max(end, slice["ts"].get<double>() + slice["dur"].get<double>());
    }
    CHECK(end / 1e6 == doctest::Approx(plan["step"]["seconds"].get<double>()).epsilon(1e-6));
    double peak = 0;
    for (const Json& sample : events(trace, "C")) {
        if (sample["name"] == "GPU memory, all") peak = std::max(peak, sample["args"]["GiB"].get<double>());
    }
    CHECK(peak * 1073741824 == doctest::Approx(plan["device_memory"]["peak_bytes"].get<double>()).epsilon(1e-9));

    // Fewer blocks are a smaller file, with a mark where the others were.
    const Json one = traced({"--method", "upipe", "--context", "256K"});
    CHECK(one["traceEvents"].size() * 8 < trace["traceEvents"].size());
    CHECK(contains(one.dump(), "31 more blocks"));
    CHECK(contains(one.dump(), "block 31: recompute"));
    CHECK(!contains(trace.dump(), "more blocks"));
}

TEST_CASE("a block of UPipe: a stage after the other, K and V sent once, no exchange beside its attention") {
    // 32 heads in stages of 8: four stages, and with 8 KV heads each of K and V goes out once, before the first.
    const Json trace = traced({"--method", "upipe", "--context", "256K"});
    Words order;
    double begin = 0;
    double end = 0;
    for (const Json& slice : events(trace, "X")) {
        if (slice["tid"] == 0 && slice["name"] == "block 0: forward") {
            begin = slice["ts"];
            end = begin + slice["dur"].get<double>();
        }
    }
    REQUIRE(end > begin);
    std::vector<Json> slices;
    for (const Json& slice : events(trace, "X")) {
        const bool exchange = slice["cat"] == "all_to_all" && slice["name"] != "held up by a collective";
        const bool inside = slice["ts"] >= begin && slice["ts"] < end;
        if (inside && (exchange || slice["name"] == "attention")) slices.push_back(slice);
    }
    std::stable_sort(slices.begin(), slices.end(), [](const Json& a, const Json& b) { return a["ts"] < b["ts"]; });
    double before = 0;
    std::string shape;
    for (const Json& slice : slices) {
        CHECK(slice["ts"].get<double>() >= before - 1e-6);  // one after the other, though on two tracks
        before = slice["ts"].get<double>() + slice["dur"].get<double>();
        shape += slice["name"] == "attention" ? 'A' : 'x';
    }
    CHECK(shape ==
          "xxxA"
          "xxA"
          "xxA"
          "xxA"
          "x");
}

TEST_CASE("calibrations are listed, and one is shown with sources, ranges and references") {
    const Json list = json_of({"show", "calibrations"})["calibrations"];
    CHECK(list.size() >= 4);
    const Json constants = json_of({"show", "calibration", "h100-sxm-80gb"})["constants"];
    const auto found = std::find_if(constants.begin(), constants.end(), [](const Json& constant) {
        return constant["constant"] == "attention.fa3.forward.causal";
    });
    REQUIRE(found != constants.end());
    CHECK((*found)["value"].get<double>() == doctest::Approx(653));
    CHECK((*found)["unit"] == "TFLOP/s");
    CHECK((*found)["low"].get<double>() == doctest::Approx(653 * 0.95));
    CHECK((*found)["source"] == "FITTED");
    for (const Json& constant : constants) CHECK(!constant["reference"].get<std::string>().empty());
    for (const Words& words : {Words{"show", "calibrations"}, Words{"show", "calibration", "a100-sxm-80gb"}}) {
        for (const std::string& line : lines_of(run_headroom(words).out)) CHECK(line.size() <= 80);
    }
}

}  // namespace headroom
