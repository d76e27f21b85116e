// SPDX-License-Identifier: Apache-2.0
// Which part of a job this process is, and how the processes of several nodes find each other: no MPI, only the
// variables launchers set and one TCP connection each to the first process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace headroom {

struct JobPlace {
    int rank = 0, size = 1;              ///< of processes
    int local_rank = 0, local_size = 1;  ///< on this node
    std::string launcher;                ///< "torchrun", "Open MPI", "Slurm", "PMI"; empty: none
    std::string address;                 ///< host of rank 0; empty: not said
    int port = 0;                        ///< 0: not said
};

/// Reads RANK and WORLD_SIZE (torchrun), else OMPI_COMM_WORLD_*, else SLURM_*, else PMI_*. Throws Error for a set that
/// is incomplete or contradicts itself, with the variable's name. `get` looks a variable up.
JobPlace find_place(const std::function<std::optional<std::string>(const char*)>& get);
JobPlace find_place();  ///< in this process's environment

/// Rank 0 gives `message` to all others and every process leaves with it. Each step waits at most `patience` seconds;
/// an Error then names the ranks that did not come, or the address that did not answer.
std::string broadcast_from_first(const JobPlace& place, const std::string& message, double patience);

/// True when each process of a node has a GPU of its own, not all of them.
bool one_gpu_each(const JobPlace& place);

}  // namespace headroom
