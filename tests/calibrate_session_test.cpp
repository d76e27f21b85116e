// SPDX-License-Identifier: Apache-2.0
// Sessions against a fake device, and the files they leave.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "calibrate/probe_file.hpp"
#include "calibrate/session.hpp"
#include "fake_device.hpp"
#include "run_headroom.hpp"

using namespace headroom;

namespace {

std::string first_session(const TemporaryDirectory& directory, FakeDevice& device, const std::vector<Probe>& probes,
                          SessionResult& result) {
    std::string path = directory.path("probes.jsonl");
    ProbeWriter writer = ProbeWriter::create(path);
    writer.write(device.provenance());
    result = run_session(device, probes, writer, device.options());
    return path;
}

}  // namespace

TEST_CASE("a record holds median, MAD, the rule that ended it, clocks, and the rate of the work") {
    FakeDevice device;
    device.series = {0.02, 0.02, 0.02, 0.01, 0.03};  // two to three warm runs, then this in turn
    const Json record = run_probe(device, small_probe("a"), device.options());
    CHECK(record["status"] == "ok");
    CHECK(record["warm"]["runs"] == 3);  // 0.05 s need a third run of 0.02
    CHECK(record["seconds"]["median"] == 0.02);
    CHECK(record["seconds"]["first"] == 0.01);  // the fourth run
    CHECK(record["samples"] == 5);
    CHECK(record["stopped_by"] == "converged");
    CHECK(record["rate_per_second"].get<double>() == doctest::Approx(2 * 128 * 64 * 32 / 0.02));
    CHECK(record["before"]["sm_clock_mhz"] == 1500);
    CHECK(record["after"]["throttle"][0] == "software power cap");
    CHECK(record["check"]["relative_error"] == 1e-3);
}

TEST_CASE("a wrong or missing number fails the probe and keeps no time") {
    FakeDevice device;
    for (const double error : {0.02, std::numeric_limits<double>::quiet_NaN()}) {
        device.check = {error, 0.01, true};
        const Json record = run_probe(device, small_probe("a"), device.options());
        CHECK(record["status"] == "failed");
        CHECK(contains(record["reason"].get<std::string>(), "the result is wrong"));
        CHECK_FALSE(record.contains("seconds"));
    }
    CHECK(device.runs == 0);
}

TEST_CASE("failures and waivers do not end a session; a lost device does") {
    const TemporaryDirectory directory;
    FakeDevice device;
    device.preparing["b"] = [] { throw Error("out of memory", "", "", ExitCode::failure); };
    device.preparing["c"] = [] { throw Waived("no such kernel here"); };
    device.preparing["d"] = [&] {
        device.alive = false;
        throw Error("cudaErrorIllegalAddress", "", "", ExitCode::failure);
    };
    SessionResult result;
    const std::string path = first_session(
        directory, device, {small_probe("a"), small_probe("b"), small_probe("c"), small_probe("d"), small_probe("e")},
        result);
    CHECK(result.ok == 1);
    CHECK(result.failed == 2);
    CHECK(result.waived == 1);
    CHECK(result.device_lost);
    const ProbeFile file = read_probe_file(path);
    CHECK(file.records.size() == 4);
    CHECK(file.records[1]["reason"] == "out of memory");
    CHECK(finished_probes(file) == std::vector<std::string>{"a", "c"});
}

TEST_CASE("what is waived says why, once for the same reason") {
    const TemporaryDirectory directory;
    FakeDevice device;
    for (const char* name : {"a", "b"}) device.preparing[name] = [] { throw Waived("CUPTI is not here"); };
    device.preparing["c"] = [] { throw Waived("another reason"); };
    ProbeWriter writer = ProbeWriter::create(directory.path("p"));
    writer.write(device.provenance());
    std::vector<std::string> lines;
    SessionOptions options = device.options();
    options.progress = [&](const std::string& line) { lines.push_back(line); };
    CHECK(run_session(device, {small_probe("a"), small_probe("b"), small_probe("c")}, writer, options).waived == 3);
    const auto says = [&](std::string_view part) {
        return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return contains(line, part); });
    };
    CHECK(says("waived: CUPTI is not here") == 1);
    CHECK(says("c waived: another reason") == 1);
}

TEST_CASE("Ctrl-C loses the running probe and no other") {
    const TemporaryDirectory directory;
    FakeDevice device;
    std::atomic<bool> interrupted{false};
    device.preparing["b"] = [&] { interrupted = true; };
    ProbeWriter writer = ProbeWriter::create(directory.path("p"));
    writer.write(device.provenance());
    SessionOptions options = device.options();
    options.interrupted = &interrupted;
    const SessionResult result =
        run_session(device, {small_probe("a"), small_probe("b"), small_probe("c")}, writer, options);
    CHECK(result.interrupted);
    CHECK(finished_probes(read_probe_file(directory.path("p"))) == std::vector<std::string>{"a"});
}

TEST_CASE("a file cut in mid-line goes on behind its last whole line") {
    const TemporaryDirectory directory;
    FakeDevice device;
    SessionResult result;
    const std::string path = first_session(directory, device, {small_probe("a"), small_probe("b")}, result);
    const std::string whole = read_file(path);
    // Wherever the end of the last record is cut off, what is left is read, and the file is whole after resuming.
    const std::size_t last = whole.rfind("{\"record\"");
    for (const std::size_t end : {last + 1, last + 30, whole.size() - 2, whole.size() - 1}) {
        CAPTURE(end);
        const std::string cut = directory.write("cut", whole.substr(0, end));
        const ProbeFile before = read_probe_file(cut);
        CHECK(before.cut);
        CHECK(finished_probes(before) == std::vector<std::string>{"a"});
        {
            ProbeWriter writer = ProbeWriter::resume(cut, before.whole_bytes);
            writer.write(device.provenance());
            writer.write(run_probe(device, small_probe("b"), device.options()));
        }
        const ProbeFile after = read_probe_file(cut);
        CHECK_FALSE(after.cut);
        CHECK(finished_probes(after) == std::vector<std::string>{"a", "b"});
    }
}

TEST_CASE("files that are no probe file, of another version or machine are refused with the place") {
    FakeDevice device;
    const std::string provenance = device.provenance().dump() + "\n";
    const auto refuse = [](const std::string& text, std::string_view what, std::string_view where) {
        try {
            parse_probe_file(text, "f.jsonl");
            FAIL("not refused: " << text);
        } catch (const Error& error) {
            CHECK(contains(error.what(), what));
            CHECK(error.where() == where);
        }
    };
    refuse("", "no complete record", "f.jsonl");
    refuse("hello\n", "no probe record", "f.jsonl:1");
    refuse(provenance + "{\"record\":\"probe\"}\n", "no probe record", "f.jsonl:2");
    refuse("{\"record\":\"probe\",\"name\":\"a\",\"status\":\"ok\"}\n", "must be the provenance", "f.jsonl:1");
    Json other = device.provenance();
    other["method_version"] = probe_method_version + 1;
    refuse(other.dump() + "\n", "method version", "f.jsonl:1");
    other["schema"] = 99;
    refuse(other.dump() + "\n", "schema 99", "f.jsonl:1");

    const Json before = device.provenance();
    CHECK_NOTHROW(require_same_machine(before, device.provenance(), "f"));
    Json more = before;
    more["job"] = {{"gpus", 16}};
    CHECK_THROWS_AS(require_same_machine(before, more, "f"), Error);
    device.driver = "590.0";
    CHECK_THROWS_AS(require_same_machine(before, device.provenance(), "f"), Error);
}

TEST_CASE("an existing file is not overwritten, and a full disk keeps what was written") {
    const TemporaryDirectory directory;
    directory.write("there", "x");
    CHECK_THROWS_AS(ProbeWriter::create(directory.path("there")), Error);
    CHECK(read_file(directory.path("there")) == "x");
    CHECK_THROWS_AS(ProbeWriter::create(directory.path("no/such/directory")), Error);
    ProbeWriter full = ProbeWriter::resume("/dev/full", 0);
    CHECK_THROWS_AS(full.write(Json{{"record", "probe"}}), Error);
}
