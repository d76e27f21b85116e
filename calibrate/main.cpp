// SPDX-License-Identifier: Apache-2.0
// headroom-calibrate: started by `headroom calibrate`, or on its own.
#include <fmt/core.h>

#include <csignal>

#include "calibrate/calibrate.hpp"
#include "calibrate/check_command.hpp"
#include "calibrate/cuda/check_ranks.hpp"
#include "calibrate/cuda/device.hpp"
#include "calibrate/cuda/run_fleet.hpp"
#include "calibrate/run/command.hpp"

namespace {

using namespace headroom;

CheckMachine check_on_gpus(const std::vector<std::string>& words) {
    CheckMachine machine;
    machine.element = 2;
    machine.smallest_bound = 2e-3;
    machine.ranks = {1, 4};
    if (const int gpus = visible_gpus(); gpus > 1 && gpus != 4) machine.ranks.insert(machine.ranks.begin() + 1, gpus);
    machine.model.layers = 1;
    machine.model.hidden = 512;
    machine.model.heads = 16;
    machine.model.kv_heads = 8;
    machine.model.head_dim = 64;
    machine.model.ffn = machine.model.vocabulary = 8;
    machine.context = 768;
    machine.step_model = machine.model;
    machine.step_model.layers = 2;
    machine.step_model.hidden = 256;
    machine.step_model.ffn = 384;
    machine.step_model.vocabulary = 512;
    machine.step_context = 512;
    machine.open = open_cuda_check_ranks;
    machine.provenance = [words] { return with_command(open_cuda_device()->provenance(), words); };
    return machine;
}

ExitCode start(const CalibrateOptions& options, const std::vector<std::string>& words) {
    switch (options.action) {
        case CalibrateAction::run:
            return run_runs(options, words, open_cuda_fleet);
        case CalibrateAction::check:
            return run_check(options, needs_device(options) ? check_on_gpus(words) : check_on_host());
        default:
            return run_calibrate(options, words, open_cuda_device);
    }
}

}  // namespace

int main(int count, char** values) {
    std::signal(SIGPIPE, SIG_IGN);
    const std::vector<std::string> words(values + (count > 0 ? 1 : 0), values + count);
    try {
        const CalibrateOptions options = parse_calibrate_options(words);
        return static_cast<int>(start(options, words));
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
