// SPDX-License-Identifier: Apache-2.0
// headroom-calibrate: started by `headroom calibrate`, or on its own.
#include <fmt/core.h>

#include <csignal>

#include "calibrate/calibrate.hpp"
#include "calibrate/cuda/device.hpp"
#include "calibrate/cuda/run_fleet.hpp"
#include "calibrate/run/command.hpp"

int main(int count, char** values) {
    using namespace headroom;
    std::signal(SIGPIPE, SIG_IGN);
    const std::vector<std::string> words(values + (count > 0 ? 1 : 0), values + count);
    try {
        const CalibrateOptions options = parse_calibrate_options(words);
        const ExitCode code = options.action == CalibrateAction::run ? run_runs(options, words, open_cuda_fleet)
                                                                     : run_calibrate(options, words, open_cuda_device);
        return static_cast<int>(code);
    } catch (const Error& error) {
        const std::string where = error.where().empty() ? "" : " (" + error.where() + ")";
        fmt::print(stderr, "headroom-calibrate: error: {}{}\n", error.what(), where);
        if (!error.hint().empty()) fmt::print(stderr, "  try: {}\n", error.hint());
        return static_cast<int>(error.exit_code());
    } catch (const std::exception& error) {
        fmt::print(stderr, "headroom-calibrate: error: {}\n", error.what());
        return static_cast<int>(ExitCode::failure);
    }
}
