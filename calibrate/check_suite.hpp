// SPDX-License-Identifier: Apache-2.0
// The tables of `headroom calibrate check`: attention alone, and whole training steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/check_command.hpp"

namespace headroom {

/// One result of a case.
struct CheckedResult {
    std::string name, key;  ///< as printed, and in records
    double error;           ///< relative; maybe not a number
};

struct CheckedCase {
    std::vector<CheckedResult> results;  ///< the same ones for every case of a suite
    std::int64_t peak_bytes = 0;         ///< of the largest rank
};

/// Cases that are compared with the same reference.
struct CheckSuite {
    struct Column {
        std::string heading;
        std::function<double(const CheckedCase&)> error;
    };
    std::string title;    ///< of the table
    std::string subject;  ///< what a case computes when it is right
    std::string key;      ///< of the records
    std::vector<Column> columns;
    std::vector<CheckCase> cases;
    CheckCase alone;  ///< one rank, whose errors are what number formats cost
    /// The reference is computed by the first call.
    std::function<CheckedCase(const CheckCase&, const DeviceFactory&, const std::function<void()>& give_up)> run;
};

/// Attention, attention with QK norm, steps, and steps of a model with QK norm and tied embeddings: every case at each
/// number of `ranks`.
std::vector<CheckSuite> check_suites(const CheckMachine& machine, const std::vector<int>& ranks);

}  // namespace headroom
