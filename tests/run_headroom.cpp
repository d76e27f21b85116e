// SPDX-License-Identifier: Apache-2.0
#include "tests/run_headroom.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace headroom {

namespace fs = std::filesystem;

namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> result;
    for (std::string& word : words) result.push_back(word.data());
    result.push_back(nullptr);
    return result;
}

Outcome run(std::vector<std::string> words, const std::vector<std::string>& added) {
    const TemporaryDirectory directory;
    const std::string out = directory.path("out");
    const std::string err = directory.path("err");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);

    std::vector<std::string> environment = added;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    pid_t child = 0;
    const int failed = posix_spawn(&child, words.front().c_str(), &actions, nullptr, pointers(words).data(),
                                   pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("cannot start " + words.front());
    int status = 0;
    if (waitpid(child, &status, 0) != child) throw std::runtime_error("cannot wait for " + words.front());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
}

}  // namespace

Outcome run_headroom(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
    std::vector<std::string> words{HEADROOM_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run(std::move(words), environment);
}

Outcome run_shell(const std::string& script) { return run({"/bin/sh", "-c", script}, {"HEADROOM=" HEADROOM_BINARY}); }

TemporaryDirectory::TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "headroom-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

std::string TemporaryDirectory::write(std::string_view name, std::string_view text) const {
    std::string file = path(name);
    std::ofstream(file, std::ios::binary) << text;
    return file;
}

std::vector<std::string> TemporaryDirectory::names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(path_)) result.push_back(entry.path().filename().string());
    std::sort(result.begin(), result.end());
    return result;
}

std::string read_file(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace headroom
