// SPDX-License-Identifier: Apache-2.0
#include "calibrate/host_facts.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace headroom {
namespace {

std::string first_line(const char* path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

std::string value_after(const char* path, const std::string& key) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

int numa_nodes() {
    int count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", ignored)) {
        const std::string name = entry.path().filename().string();
        count += name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos ? 1 : 0;
    }
    return std::max(count, 1);
}

std::int64_t number_or(const std::string& text, std::int64_t otherwise) {
    try {
        return std::stoll(text);
    } catch (const std::exception&) {
        return otherwise;
    }
}

}  // namespace

std::int64_t host_memory_bytes() {
    const std::int64_t total = number_or(value_after("/proc/meminfo", "MemTotal"), 0) * kibi;
    const std::int64_t limit = number_or(first_line("/sys/fs/cgroup/memory.max"), 0);
    return std::max(total, limit);
}

Json host_facts() {
    utsname names{};
    ::uname(&names);
    return {{"cpu", value_after("/proc/cpuinfo", "model name")},
            {"threads", std::thread::hardware_concurrency()},
            {"numa_nodes", numa_nodes()},
            {"memory_bytes", host_memory_bytes()},
            {"kernel", names.release},
            {"huge_pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")}};
}

Json environment_facts() {
    Json result = Json::object();
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text(*entry);
        const std::size_t equals = text.find('=');
        if (equals == std::string::npos) continue;
        if (text.starts_with("NCCL_") || text.starts_with("CUDA_") || text.starts_with("NVSHMEM_") ||
            text.starts_with("CUDNN_") || text.starts_with("CUBLAS")) {
            result[text.substr(0, equals)] = text.substr(equals + 1);
        }
    }
    return result;
}

std::string node_identity() { return short_hash(first_line("/proc/sys/kernel/random/boot_id")); }

std::string short_hash(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    return fmt::format("{:016x}", hash);
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

double monotonic_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace headroom
