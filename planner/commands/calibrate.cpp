// SPDX-License-Identifier: Apache-2.0
// headroom calibrate: plans probes, predicts runs and fits constants itself, and starts headroom-calibrate for what
// needs a GPU.
#include "calibrate/calibrate.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "calibrate/check_command.hpp"
#include "calibrate/compare.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/run/command.hpp"
#include "configs/calibration.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"

namespace headroom {

namespace {

constexpr const char* program = "headroom-calibrate";

/// Replaces this process: beside this program first, then along PATH. Comes back only with an error.
[[noreturn]] void start_program(const Words& words) {
    std::string name = program;
    Words arguments{name};
    arguments.insert(arguments.end(), words.begin(), words.end());
    std::vector<char*> values;
    for (std::string& argument : arguments) values.push_back(argument.data());
    values.push_back(nullptr);

    std::error_code ignored;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    if (!self.empty()) {
        const std::string beside = (self.parent_path() / program).string();
        ::execv(beside.c_str(), values.data());
    }
    ::execvp(program, values.data());
    if (errno == ENOENT) {
        throw Error("headroom-calibrate is not here: it is built only where a CUDA toolkit is installed",
                    "headroom calibrate",
                    "build Headroom on a machine with nvcc and cuDNN, or put headroom-calibrate beside headroom or on "
                    "the PATH",
                    ExitCode::failure);
    }
    throw Error(std::string("headroom-calibrate does not start: ") + std::strerror(errno), "headroom calibrate", "",
                ExitCode::failure);
}

ExitCode fit(const CalibrateOptions& options) {
    const Calibration base = load_calibration(options.base.empty() ? "h200" : options.base);
    std::vector<ProbeFile> files;
    for (const std::string& input : options.inputs) files.push_back(read_probe_file(input));
    Output output;
    output.path = options.output;
    const std::string machine = options.name.empty() ? base.machines.front() : options.name;
    const FitResult result = fit_probes(files);
    write(output, calibration_text(result, base, machine));
    if (!options.cluster_output.empty()) {
        Output cluster;
        cluster.path = options.cluster_output;
        write(cluster, cluster_text(result, base.machines.front()));
    }
    return ExitCode::ok;
}

ExitCode compare(const CalibrateOptions& options) {
    const Calibration first = load_calibration(options.inputs[0]), second = load_calibration(options.inputs[1]);
    write({}, compare_text(first, second, options.tolerance));
    return agree(differences(first, second), options.tolerance) ? ExitCode::ok : ExitCode::failure;
}

}  // namespace

Synopsis calibrate_synopsis() {
    const FlagGroup probes{"probes",
                           {{"list", "", "names of the probes, in the order they run; no GPU is needed"},
                            {"dry-run", "", "the same with the seconds and bytes they take; no GPU is needed"},
                            {"gpus", "N", "with these two: for so many GPUs, of nodes of 8 (default 1)"},
                            {"only", "GLOB", "only these", 0, true},
                            {"skip", "GLOB", "not these", 0, true},
                            {"budget", "SECONDS", "leave out what does not fit in this time"},
                            {"resume", "FILE", "go on with a session that was ended; begin FILE if it is missing"}}};
    const FlagGroup fit_flags{"fit",
                              {{"base", "NAME", "calibration that says what was not probed"},
                               {"name", "NAME", "cluster the calibration is for"},
                               {"cluster", "FILE", "also a cluster file: GPUs, memory, and what NCCL takes of it"}}};
    const FlagGroup compare_flags{"compare", {{"tolerance", "SHARE", "list figures further apart (default 0.02)"}}};
    const FlagGroup run_group{"run",
                              {{"method", "LIST", "methods to execute"},
                               {"context", "LIST", "tokens of one sequence over all GPUs: 128K,256K"},
                               {"gpus", "N", "GPUs of this machine (default 1)"},
                               {"model", "NAME", "built-in name or config.json (default llama3-8b)"},
                               {"layers", "N", "so many blocks of it instead of all"},
                               {"no-loss", "", "blocks alone: no embedding, loss and optimizer"},
                               {"ulysses", "DEGREE", "GPUs that exchange heads"},
                               {"ring", "DEGREE", "GPUs that pass keys and values around"},
                               {"heads-per-stage", "LIST", "upipe: heads of one stage (U)"},
                               {"chunk-tokens", "LIST", "fpdt: global tokens of one chunk"},
                               {"set", "KEY=VALUE", "any recipe key", 0, true},
                               {"cluster", "NAME", "machine the prediction is for (default h200)"},
                               {"calibration", "NAME", "its constants (default: the cluster's own)"},
                               {"compare", "FILE", "such a file beside today's predictions; nothing is run"},
                               {"steps", "N", "timed repetitions (default 3)"},
                               {"warm", "SECONDS", "of load before them (default 2)"}}};
    const FlagGroup check_group{"check",
                                {{"ranks", "LIST", "so many ranks (default: one, all GPUs, four)"},
                                 {"on-host", "", "in plain arithmetic, with threads for ranks; no GPU is needed"}}};
    const FlagGroup result{"Result", {{"output", "FILE", "a new file; otherwise standard output", 'o'}}};
    return {.command = "headroom calibrate",
            .usage =
                "probes [flags] | fit FILE... [flags] | compare A B | run --method LIST --context LIST [flags] | check "
                "[flags]",
            .summary =
                "Measures this machine, one JSON line for each finished probe, fits a calibration file to such "
                "lines, executes a method's lean schedule beside its prediction, and checks that the schedules compute "
                "attention and a training step.",
            .groups = {probes, fit_flags, compare_flags, run_group, check_group, result},
            .examples = {"headroom calibrate probes --dry-run", "headroom calibrate probes -o node7.jsonl",
                         "headroom calibrate fit node7.jsonl --base h200 -o node7.yaml",
                         "headroom calibrate compare h200 node7.yaml",
                         "headroom calibrate run --method ulysses,upipe --context 128K --gpus 2 --dry-run",
                         "headroom calibrate check --on-host"}};
}

ExitCode calibrate_command(const Words& words) {
    const CalibrateOptions options = parse_calibrate_options(words);
    if (needs_device(options)) start_program(words);
    if (options.action == CalibrateAction::fit) return fit(options);
    if (options.action == CalibrateAction::compare) return compare(options);
    if (options.action == CalibrateAction::run) return run_runs(options, words, nullptr);
    if (options.action == CalibrateAction::check) return run_check(options, check_on_host());
    return run_calibrate(options, words, nullptr);
}

}  // namespace headroom
