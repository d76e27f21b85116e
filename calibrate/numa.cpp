// SPDX-License-Identifier: Apache-2.0
#include "calibrate/numa.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>

namespace headroom {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

std::optional<int> number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

int numa_node_of(const std::string& pci_bus_id, const std::string& root) {
    std::string id = pci_bus_id;  // CUDA writes capitals, the kernel does not
    std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return std::tolower(c); });
    return number(first_line(root + "/bus/pci/devices/" + id + "/numa_node")).value_or(-1);
}

std::vector<int> cpus_of_node(int node, const std::string& root) {
    if (node < 0) return {};
    return parse_cpu_list(first_line(fmt::format("{}/devices/system/node/node{}/cpulist", root, node)));
}

std::vector<int> parse_cpu_list(const std::string& text) {
    std::vector<int> cpus;
    std::string_view rest = text;
    while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view part = rest.substr(0, comma);
        const std::size_t dash = std::min(part.find('-'), part.size());
        const auto first = number(part.substr(0, dash));
        const auto last = dash < part.size() ? number(part.substr(dash + 1)) : first;
        if (!first || !last || *first < 0 || *last < *first || *last >= CPU_SETSIZE) return {};
        for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return cpus;
}

bool bind_this_thread(const std::vector<int>& cpus) {
    cpu_set_t allowed, wanted;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
    CPU_ZERO(&wanted);
    for (const int cpu : cpus) {
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &wanted);
    }
    return CPU_COUNT(&wanted) > 0 && ::sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

std::string binding_text(int node, bool bound) {
    if (node < 0) return "not bound: the system names no memory node for this GPU";
    if (!bound) return fmt::format("not bound: none of the CPUs of node {} is open to this process", node);
    return fmt::format("host threads bound to the CPUs of node {}", node);
}

}  // namespace headroom
