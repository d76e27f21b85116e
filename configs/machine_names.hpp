// SPDX-License-Identifier: Apache-2.0
// The model and the machine that a launch file was written for, as a comment in it: the codes' own files do not say
// them in words that lead back here.
#pragma once

#include <optional>
#include <string>

namespace headroom {

/// As typed after --model, --cluster, --nodes and --gpus.
struct MachineNames {
    std::optional<std::string> model, cluster, nodes, gpus;
    bool operator==(const MachineNames&) const = default;
};

/// "--model qwen3-32b --nodes 2": what is said, quoted as a shell would need it.
std::string flags_of(const MachineNames& machine);

/// "# headroom: " and the flags, ended by a newline; empty when nothing is said.
std::string machine_comment(const MachineNames& machine);
/// What such a line of a file says; nothing when it has none.
MachineNames read_machine_comment(const std::string& text, const std::string& path);

}  // namespace headroom
