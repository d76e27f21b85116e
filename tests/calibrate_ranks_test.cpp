// SPDX-License-Identifier: Apache-2.0
// Which process of a job this is, and the meeting of all, on loopback.
#include <doctest/doctest.h>

#include <unistd.h>

#include <map>
#include <thread>

#include "calibrate/ranks.hpp"
#include "models/error.hpp"
#include "run_headroom.hpp"

using namespace headroom;

namespace {

JobPlace place_in(const std::map<std::string, std::string>& variables) {
    return find_place([&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
    });
}

/// Ports differ between test processes that run at once.
int free_port(int offset) { return 20000 + static_cast<int>(::getpid() % 10000) * 4 + offset; }

}  // namespace

TEST_CASE("each launcher's variables are read, torchrun's before Slurm's around it") {
    CHECK(place_in({}).size == 1);
    CHECK(place_in({}).launcher.empty());
    const std::map<std::string, std::string> meeting{{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
    auto variables = meeting;
    variables.insert({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "1"}});
    CHECK(place_in(variables).launcher == "Slurm");
    CHECK(place_in(variables).rank == 5);
    CHECK(place_in(variables).size == 16);
    CHECK(place_in(variables).local_rank == 1);
    CHECK(place_in(variables).address == "node1");
    CHECK(place_in(variables).port == 29500);
    variables.insert({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}});
    CHECK(place_in(variables).launcher == "torchrun");
    CHECK(place_in(variables).rank == 2);
    variables = meeting;
    variables.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    CHECK(place_in(variables).launcher == "Open MPI");
}

TEST_CASE("what is missing or wrong is named") {
    const auto refuse = [](const std::map<std::string, std::string>& variables, std::string_view where) {
        try {
            place_in(variables);
            FAIL("not refused");
        } catch (const Error& error) {
            CHECK(error.where() == where);
        }
    };
    refuse({{"RANK", "0"}}, "WORLD_SIZE");
    refuse({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK");
    refuse({{"RANK", "x"}, {"WORLD_SIZE", "4"}}, "RANK");
    refuse({{"RANK", "0"}, {"WORLD_SIZE", "4"}}, "MASTER_ADDR");
    refuse({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "70000"}}, "MASTER_PORT");
}

TEST_CASE("every rank leaves with the first one's message, whoever comes first") {
    constexpr int size = 5;
    std::string message(128, 'x');
    message[7] = '\0';  // as an NCCL id has
    std::vector<std::string> received(size);
    std::vector<std::thread> threads;
    for (int rank = size - 1; rank >= 0; --rank) {
        threads.emplace_back([&, rank] {
            const JobPlace place{rank, size, rank, size, "test", "127.0.0.1", free_port(0)};
            received[static_cast<std::size_t>(rank)] = broadcast_from_first(place, rank == 0 ? message : "", 20);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& one : received) CHECK(one == message);
}

TEST_CASE("a peer that never comes ends as an error with its rank, within the time given") {
    const JobPlace first{0, 3, 0, 1, "test", "127.0.0.1", free_port(1)};
    try {
        broadcast_from_first(first, "id", 0.2);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(contains(error.what(), "rank 1, 2"));
    }
    const JobPlace second{1, 3, 0, 1, "test", "127.0.0.1", free_port(2)};
    try {
        broadcast_from_first(second, "", 0.2);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(contains(error.what(), "rank 1 got no answer"));
        CHECK(contains(error.where(), "127.0.0.1"));
    }
}
