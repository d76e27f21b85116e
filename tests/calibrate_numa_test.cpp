// SPDX-License-Identifier: Apache-2.0
// Which CPUs stand beside a GPU, read from a made-up system.
#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <thread>

#include "calibrate/numa.hpp"
#include "run_headroom.hpp"

using namespace headroom;

TEST_CASE("lists of CPUs are read as the kernel writes them") {
    CHECK(parse_cpu_list("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
    CHECK(parse_cpu_list("5") == std::vector<int>{5});
    for (const char* wrong : {"", "x", "3-1", "1-", "-2", "0-99999999", "1,,2"}) {
        CAPTURE(wrong);
        CHECK(parse_cpu_list(wrong).empty());
    }
}

TEST_CASE("a GPU's node is found by its bus id, in capitals or not; an unknown one binds nothing") {
    const TemporaryDirectory system;
    std::filesystem::create_directories(system.path("bus/pci/devices/0000:1b:00.0"));
    std::filesystem::create_directories(system.path("bus/pci/devices/0000:2a:00.0"));
    std::filesystem::create_directories(system.path("devices/system/node/node1"));
    system.write("bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    system.write("bus/pci/devices/0000:2a:00.0/numa_node", "-1\n");
    system.write("devices/system/node/node1/cpulist", "4-5\n");
    const std::string root = system.path("");
    CHECK(numa_node_of("0000:1B:00.0", root) == 1);
    CHECK(numa_node_of("0000:2A:00.0", root) == -1);
    CHECK(numa_node_of("0000:FF:00.0", root) == -1);
    CHECK(cpus_of_node(1, root) == std::vector<int>{4, 5});
    CHECK(cpus_of_node(-1, root).empty());
    CHECK(contains(binding_text(-1, false), "not bound"));
    CHECK(contains(binding_text(1, true), "node 1"));
}

TEST_CASE("a thread is bound to what is open to it, and to nothing else") {
    std::thread([] {
        cpu_set_t before;
        REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
        int first = 0;
        while (!CPU_ISSET(first, &before)) ++first;
        CHECK_FALSE(bind_this_thread({}));
        CHECK_FALSE(bind_this_thread({CPU_SETSIZE - 1}));  // no machine here has so many
        CHECK(bind_this_thread({first, CPU_SETSIZE - 1}));
        cpu_set_t after;
        REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
        CHECK(CPU_COUNT(&after) == 1);
        CHECK(CPU_ISSET(first, &after));
    }).join();
}
