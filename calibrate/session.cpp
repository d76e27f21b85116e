// SPDX-License-Identifier: Apache-2.0
#include "calibrate/session.hpp"

#include <fmt/format.h>

namespace headroom {
namespace {

struct Interrupted {};

void stop_when_interrupted(const SessionOptions& options) {
    if (options.interrupted != nullptr && options.interrupted->load()) throw Interrupted{};
}

Json json_of(const GpuState& state) {
    return {{"sm_clock_mhz", state.sm_clock_mhz},
            {"memory_clock_mhz", state.memory_clock_mhz},
            {"temperature_celsius", state.temperature_celsius},
            {"power_watts", state.power_watts},
            {"throttle", state.throttle}};
}

void warm(PreparedProbe& measurement, const Probe& probe, const SessionOptions& options, Json& record) {
    const double begin = options.now();
    std::size_t runs = 0;
    double elapsed = 0;
    // Both are asked for, but a probe far slower than planned is not warmed for ever.
    while ((runs < probe.warm.runs || elapsed < probe.warm.seconds) &&
           (runs == 0 || elapsed < 10 * probe.warm.seconds + probe.stop.seconds_most)) {
        measurement.run();
        ++runs;
        elapsed = options.now() - begin;
        stop_when_interrupted(options);
    }
    record["warm"] = {{"runs", runs}, {"seconds", elapsed}};
}

void sample(PreparedProbe& measurement, const Probe& probe, const SessionOptions& options, Json& record) {
    std::vector<double> samples;
    Stop why = Stop::converged;
    const double begin = options.now();
    while (!done(probe.stop, samples, options.now() - begin, why)) {
        samples.push_back(measurement.run());
        stop_when_interrupted(options);
    }
    const Summary summary = summarise(samples);
    record["seconds"] = {{"median", summary.median},
                         {"mad", summary.mad},
                         {"p10", summary.p10},
                         {"p90", summary.p90},
                         {"first", samples.front()}};
    record["samples"] = summary.samples;
    record["stopped_by"] = to_string(why);
    record["sampled_seconds"] = options.now() - begin;
    const Amount amount = amount_of(probe.work);
    record["amount"] = {{"value", amount.value}, {"unit", amount.unit}};
    if (summary.median > 0) record["rate_per_second"] = amount.value / summary.median;
}

void measure(Device& device, const Probe& probe, const SessionOptions& options, Json& record) {
    const std::unique_ptr<PreparedProbe> measurement = device.prepare(probe);
    stop_when_interrupted(options);
    const Check check = measurement->verify();
    if (check.done) record["check"] = {{"relative_error", check.error}, {"limit", check.limit}};
    if (!check.passed()) {
        throw Error(fmt::format("the result is wrong: relative error {:.3g}, at most {:.3g} is allowed", check.error,
                                check.limit),
                    probe.name, "no time is kept; report this with the provenance line", ExitCode::failure);
    }
    warm(*measurement, probe, options, record);
    const GpuState before = device.state();
    sample(*measurement, probe, options, record);
    record["before"] = json_of(before);
    record["after"] = json_of(device.state());
    if (Json notes = measurement->notes(); !notes.empty()) record["notes"] = std::move(notes);
}

}  // namespace

Json run_probe(Device& device, const Probe& probe, const SessionOptions& options) {
    Json record{{"record", "probe"},
                {"name", probe.name},
                {"kind", kind_of(probe.work)},
                {"settings", settings_of(probe.work)},
                {"status", "ok"}};
    const double begin = options.now();
    try {
        measure(device, probe, options, record);
    } catch (const Waived& reason) {
        record["status"] = "waived";
        record["reason"] = reason.what();
    } catch (const std::exception& error) {
        record["status"] = "failed";
        record["reason"] = error.what();
        record.erase("seconds");
        record.erase("rate_per_second");
        if (const auto* ours = dynamic_cast<const Error*>(&error)) {
            if (!ours->where().empty()) record["where"] = ours->where();
            if (!ours->hint().empty()) record["try"] = ours->hint();
        }
    }
    record["wall_seconds"] = options.now() - begin;
    record["finished"] = options.date();
    return record;
}

SessionResult run_session(Device& device, const std::vector<Probe>& probes, ProbeWriter& writer,
                          const SessionOptions& options) {
    SessionResult result;
    std::string waived;  // the last reason
    double left = 0;
    for (const Probe& probe : probes) left += estimated_seconds(probe);
    for (std::size_t i = 0; i < probes.size(); ++i) {
        const Probe& probe = probes[i];
        if (options.progress) {
            options.progress(fmt::format("[{}/{}] {}, at most {:.0f} s left", i + 1, probes.size(), probe.name, left));
        }
        left -= estimated_seconds(probe);
        try {
            stop_when_interrupted(options);
            const Json record = run_probe(device, probe, options);
            writer.write(record);
            const std::string status = record["status"];
            ++(status == "ok" ? result.ok : status == "waived" ? result.waived : result.failed);
            if (status != "ok" && options.progress) {
                const std::string reason = record["reason"];
                // Probes that need what is not here say so once, not each.
                if (status == "failed" || reason != waived) {
                    options.progress(fmt::format("{} {}: {}", probe.name, status, reason));
                }
                if (status == "waived") waived = reason;
            }
        } catch (const Interrupted&) {
            result.interrupted = true;
            return result;
        }
        if (!device.usable()) {
            result.device_lost = true;
            return result;
        }
    }
    return result;
}

}  // namespace headroom
