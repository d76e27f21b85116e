// SPDX-License-Identifier: Apache-2.0
// headroom calibrate: plans probes and fits constants itself, and starts headroom-calibrate for what needs a GPU.
#include "calibrate/calibrate.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "calibrate/fit.hpp"
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
    write(output, calibration_text(fit_probes(files), base, machine));
    return ExitCode::ok;
}

}  // namespace

ExitCode calibrate_command(const Words& words) {
    const CalibrateOptions options = parse_calibrate_options(words);
    if (needs_device(options)) start_program(words);
    return options.action == CalibrateAction::fit ? fit(options) : run_calibrate(options, words, nullptr);
}

}  // namespace headroom
