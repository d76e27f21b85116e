// SPDX-License-Identifier: Apache-2.0
// headroom-calibrate: started by `headroom calibrate`, or on its own.
#include <fmt/core.h>

#include <csignal>

#include "calibrate/calibrate.hpp"
#include "calibrate/cuda/device.hpp"

int main(int count, char** values) {
    using namespace headroom;
    std::signal(SIGPIPE, SIG_IGN);
    const std::vector<std::string> words(values + (count > 0 ? 1 : 0), values + count);
    try {
        return static_cast<int>(run_calibrate(parse_calibrate_options(words), words, open_cuda_device));
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
