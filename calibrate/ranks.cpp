// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "models/error.hpp"

namespace headroom {
namespace {

struct Launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
};
// The first whose rank is set wins: torchrun inside a Slurm job sets both.
constexpr Launcher launchers[]{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

int number(const std::string& text, const char* name, int least, int most) {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
        throw Error(fmt::format("{}='{}' is no number from {} to {}", name, text, least, most), name,
                    "start the program with torchrun, srun or mpirun");
    }
    return value;
}

}  // namespace

JobPlace find_place(const std::function<std::optional<std::string>(const char*)>& get) {
    constexpr int most = 1'000'000;
    JobPlace place;
    for (const Launcher& launcher : launchers) {
        const auto rank = get(launcher.rank);
        if (!rank) continue;
        const auto size = get(launcher.size);
        if (!size) {
            throw Error(fmt::format("{} is set and {} is not", launcher.rank, launcher.size), launcher.size,
                        "start the program with torchrun, srun or mpirun, or unset both");
        }
        place.launcher = launcher.name;
        place.size = number(*size, launcher.size, 1, most);
        place.rank = number(*rank, launcher.rank, 0, place.size - 1);
        if (const auto local = get(launcher.local_rank))
            place.local_rank = number(*local, launcher.local_rank, 0, most);
        if (const auto local = get(launcher.local_size)) {
            place.local_size = number(*local, launcher.local_size, 1, most);
        } else if (const auto tasks = get("SLURM_STEP_TASKS_PER_NODE"); tasks && place.launcher == "Slurm") {
            // "8(x2),4": the first node's stand for all
            place.local_size =
                number(tasks->substr(0, tasks->find_first_not_of("0123456789")), "SLURM_STEP_TASKS_PER_NODE", 1, most);
        }
        break;
    }
    if (const auto address = get("MASTER_ADDR")) place.address = *address;
    if (const auto port = get("MASTER_PORT")) place.port = number(*port, "MASTER_PORT", 1, 65535);
    if (place.size > 1 && (place.address.empty() || place.port == 0)) {
        throw Error(fmt::format("{} processes, and no address where they meet", place.size), "MASTER_ADDR",
                    "set MASTER_ADDR to the first node's name and MASTER_PORT to a free port on it");
    }
    return place;
}

JobPlace find_place() {
    return find_place([](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        if (value == nullptr) return std::nullopt;
        return value;
    });
}

bool one_gpu_each(const JobPlace& place) { return place.local_size > 1 || place.local_rank > 0; }

}  // namespace headroom
