// SPDX-License-Identifier: Apache-2.0
// The trace is valid JSON of the form Chrome and Perfetto read, with times in microseconds.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "reports/trace.hpp"

using namespace headroom;

namespace {

nlohmann::json written(const Trace& trace) {
    std::ostringstream out;
    write_trace(out, trace);
    return nlohmann::json::parse(out.str());
}

nlohmann::json of_phase(const nlohmann::json& document, const std::string& phase) {
    nlohmann::json found = nlohmann::json::array();
    for (const auto& event : document.at("traceEvents")) {
        if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
}

}  // namespace

TEST_CASE("a slice keeps its track, name and category, and seconds become microseconds") {
    Trace trace;
    trace.process = "rank 0";
    trace.tracks = {"compute", "ring"};
    trace.slices.push_back({"attention", "attention", 1, 0.25, 0.0015});
    const auto slices = of_phase(written(trace), "X");
    REQUIRE(slices.size() == 1);
    CHECK(slices[0].at("name") == "attention");
    CHECK(slices[0].at("cat") == "attention");
    CHECK(slices[0].at("tid") == 1);
    CHECK(slices[0].at("ts").get<double>() == doctest::Approx(250000.0));
    CHECK(slices[0].at("dur").get<double>() == doctest::Approx(1500.0));
}

TEST_CASE("tracks and the process are named, in their order") {
    Trace trace;
    trace.process = "llama3-8b \"ulysses\"\n\x01";
    trace.tracks = {"compute", "device \\ host"};
    const auto names = of_phase(written(trace), "M");
    CHECK(names[0].at("name") == "process_name");
    CHECK(names[0].at("args").at("name") == trace.process);
    CHECK(names[3].at("name") == "thread_name");
    CHECK(names[3].at("args").at("name") == "device \\ host");
    CHECK(names[4].at("args").at("sort_index") == 1);
}

TEST_CASE("counters carry value and unit, large values in full") {
    Trace trace;
    trace.counters.push_back({"allocated", "bytes", {{0.0, 0.0}, {0.001, 85899345921.0}}});
    const auto samples = of_phase(written(trace), "C");
    REQUIRE(samples.size() == 2);
    CHECK(samples[1].at("args").at("bytes").get<double>() == 85899345921.0);
    CHECK(samples[1].at("ts").get<double>() == doctest::Approx(1000.0));
}

TEST_CASE("an hour keeps its nanoseconds, and an empty trace is a document") {
    Trace trace;
    trace.tracks = {"compute"};
    trace.slices.push_back({"late", "", 0, 3600.000000001, 1e-9});
    const auto slices = of_phase(written(trace), "X");
    CHECK(slices[0].at("ts").get<double>() == doctest::Approx(3600000000.001).epsilon(1e-13));
    CHECK(slices[0].at("dur").get<double>() == doctest::Approx(0.001));
    CHECK(written(Trace{}).at("traceEvents").size() == 1);
}
