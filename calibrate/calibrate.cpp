// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "calibrate/crew_device.hpp"
#include "calibrate/host_facts.hpp"
#include "calibrate/interrupt.hpp"
#include "calibrate/probe_file.hpp"
#include "calibrate/session.hpp"

namespace headroom {
namespace {

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

ProbeWriter open_writer(const CalibrateOptions& options, const ProbeFile& before) {
    if (!options.resume.empty()) return ProbeWriter::resume(options.resume, before.whole_bytes);
    return options.output.empty() ? ProbeWriter::standard_output() : ProbeWriter::create(options.output);
}

ExitCode report(const SessionResult& result, const ProbePlan& plan) {
    say(fmt::format("{} probes ok, {} failed, {} waived", result.ok, result.failed, result.waived));
    for (const Probe& probe : plan.too_big) say("not run, too large for this machine: " + probe.name);
    if (!plan.cut.empty()) say(fmt::format("{} probes not run, beyond --budget", plan.cut.size()));
    if (result.interrupted) {
        say("interrupted: what is written stays, --resume goes on");
        return ExitCode::interrupted;
    }
    if (result.device_lost) say("the GPU answers no more: what is written stays, --resume goes on in a new process");
    return result.failed > 0 || result.device_lost ? ExitCode::failure : ExitCode::ok;
}

constexpr double meeting_patience = 120;  // seconds until every process of the job is there

GpuChoice choice_of(const JobPlace& place) { return {one_gpu_each(place) ? place.local_rank : 0, one_gpu_each(place)}; }

/// All other processes of the job: what they measure goes to the first, which writes it.
ExitCode serve(const JobPlace& place, const OpenDevice& open) {
    CrewMember member(place, meeting_patience);
    const std::unique_ptr<Device> device = open(choice_of(place));
    serve_crew(*device, member, place, node_identity());
    return ExitCode::ok;
}

std::unique_ptr<Device> open_for(const JobPlace& place, const OpenDevice& open) {
    if (place.size == 1) return open({});
    Crew crew(place, meeting_patience);
    return lead_crew(open(choice_of(place)), std::move(crew), place, node_identity());
}

/// A job script resumes the first time too: what is not there is begun.
CalibrateOptions with_file_begun(CalibrateOptions options) {
    if (!options.resume.empty() && !std::filesystem::exists(options.resume)) options.output.swap(options.resume);
    return options;
}

ExitCode run_probes(const CalibrateOptions& asked, const std::vector<std::string>& words, const OpenDevice& open) {
    const CalibrateOptions options = with_file_begun(asked);
    PlanMachine planned;
    planned.gpus = std::max(options.plan_gpus, 1);
    planned.gpus_per_node = std::min(planned.gpus, 8);
    const ProbePlan without_gpu =
        plan_probes(planned, options.selection);  // refuses a wrong selection before anything starts
    if (options.list || options.dry_run) {
        fmt::print("{}", options.list ? list_text(without_gpu) : dry_run_text(without_gpu));
        return ExitCode::ok;
    }
    const JobPlace place = find_place();
    if (place.rank > 0) return serve(place, open);
    ProbeFile before;
    if (!options.resume.empty()) before = read_probe_file(options.resume);
    const std::unique_ptr<Device> device = open_for(place, open);
    const Json provenance = with_command(device->provenance(), words);
    if (!options.resume.empty()) require_same_machine(before.provenance, provenance, options.resume);
    ProbePlan plan = plan_probes(device->machine(), options.selection);
    const std::vector<std::string> finished = finished_probes(before);
    std::erase_if(plan.probes, [&](const Probe& probe) {
        return std::find(finished.begin(), finished.end(), probe.name) != finished.end();
    });
    ProbeWriter writer = open_writer(options, before);
    writer.write(provenance);
    return report(run_session(*device, plan.probes, writer, {monotonic_seconds, utc_now, say, &catch_interrupts()}),
                  plan);
}

}  // namespace

Json with_command(Json provenance, const std::vector<std::string>& words) {
    std::string command = "headroom calibrate";
    for (const std::string& word : words) command += " " + word;
    provenance["command"] = command;
    provenance["started"] = utc_now();
    return provenance;
}

ExitCode run_calibrate(const CalibrateOptions& options, const std::vector<std::string>& words, const OpenDevice& open) {
    switch (options.action) {
        case CalibrateAction::help:
            fmt::print("{}", calibrate_help(options.help_of));
            return ExitCode::ok;
        case CalibrateAction::version:
            fmt::print("headroom-calibrate, probe method {}\n", probe_method_version);
            return ExitCode::ok;
        case CalibrateAction::probes:
            return run_probes(options, words, open);
        case CalibrateAction::fit:
        case CalibrateAction::compare:
            throw Error("this needs no GPU", "headroom-calibrate", "headroom calibrate does it");
        case CalibrateAction::run:
        case CalibrateAction::check:
            break;
    }
    throw Error("this action is not built in", "headroom calibrate");
}

}  // namespace headroom
