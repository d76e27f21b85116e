// SPDX-License-Identifier: Apache-2.0
// `headroom calibrate check`: proves the schedules on this machine's GPUs, or in plain arithmetic.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/check.hpp"
#include "calibrate/options.hpp"
#include "calibrate/probe.hpp"
#include "models/error.hpp"

namespace headroom {

/// The ranks of one case, all in this process.
class CheckRanks {
 public:
    virtual ~CheckRanks() = default;
    /// Called by the thread of the rank.
    virtual std::unique_ptr<ComputeDevice> device(int rank) = 0;
    virtual void give_up() = 0;
    /// "2 GPUs", "one GPU", "the host"
    virtual std::string place() const = 0;
};

/// What a check runs on.
struct CheckMachine {
    std::int64_t element;    ///< bytes of a narrow element
    double smallest_bound;   ///< relative errors below it are never wrong
    std::vector<int> ranks;  ///< numbers of ranks to check
    TransformerShape model;  ///< of attention alone
    std::int64_t context;
    TransformerShape step_model;  ///< of whole training steps
    std::int64_t step_context;
    std::function<std::unique_ptr<CheckRanks>(int ulysses, int ring)> open;
    std::function<Json()> provenance;
};

/// Plain arithmetic, ranks as threads; needs no GPU.
CheckMachine check_on_host();

/// Checks every case of attention, then of training steps, prints one line for each on standard output, and JSON lines
/// to `options.output` when given. A case is wrong where an error is above three times that of one rank alone, which is
/// what number formats cost, or where it cannot run. Returns failure then.
ExitCode run_check(const CalibrateOptions& options, const CheckMachine& machine);

}  // namespace headroom
