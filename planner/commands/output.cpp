// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "models/error.hpp"

namespace headroom {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& where, int reason) {
    throw Error(what + ": " + std::strerror(reason), where, "check the disk and the permissions", ExitCode::failure);
}

/// Holds Ctrl-C back while a temporary file exists, so that none is left behind.
class Uninterrupted {
 public:
    Uninterrupted() {
        sigset_t held;
        sigemptyset(&held);
        sigaddset(&held, SIGINT);
        sigaddset(&held, SIGTERM);
        sigprocmask(SIG_BLOCK, &held, &before_);
    }
    ~Uninterrupted() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    Uninterrupted(const Uninterrupted&) = delete;
    Uninterrupted& operator=(const Uninterrupted&) = delete;

 private:
    sigset_t before_ = {};
};

/// 0, or the errno of the first write that failed.
int write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(file, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

bool is_replaceable(const fs::path& path) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    return !fs::exists(status) || fs::is_regular_file(status);
}

/// Devices and pipes are written to as they are; renaming over them would replace them.
void write_special(const std::string& path, const std::string& text) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) fail("cannot open the output", path, errno);
    const int reason = write_all(file, text);
    ::close(file);
    if (reason != 0 && reason != EPIPE) fail("cannot write the output", path, reason);
}

void write_file(const std::string& path, const std::string& text) {
    std::error_code ignored;
    fs::path target = fs::canonical(path, ignored);  // through a link, to replace what it points to
    if (target.empty()) target = path;
    const Uninterrupted until_done;
    std::string temporary = target.string() + ".XXXXXX";
    const int file = ::mkostemp(temporary.data(), O_CLOEXEC);
    if (file < 0) fail("cannot create a file there", path, errno);
    struct ::stat old = {};
    const mode_t mask = ::umask(0);
    ::umask(mask);
    const mode_t mode = ::stat(target.c_str(), &old) == 0 ? old.st_mode & 07777U : 0666U & ~mask;
    int reason = write_all(file, text);
    if (reason == 0 && ::fchmod(file, mode) != 0) reason = errno;
    if (::close(file) != 0 && reason == 0) reason = errno;
    if (reason == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) reason = errno;
    if (reason == 0) return;
    ::unlink(temporary.c_str());
    fail("cannot write the output", path, reason);
}

bool terminal_with_colour() {
    const char* no_colour = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    if (no_colour != nullptr && *no_colour != '\0') return false;
    if (terminal == nullptr || std::string_view(terminal) == "dumb") return false;
    return ::isatty(STDOUT_FILENO) == 1;
}

}  // namespace

void check_path(const std::string& path, const std::string& flag) {
    if (path.empty()) throw Error("the output has no name", flag, "write e.g. " + flag + " plan.json");
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        throw Error("'" + path + "' is a directory", flag, "name a file in it");
    }
    fs::path directory = fs::path(path).parent_path();
    if (directory.empty()) directory = ".";
    if (!fs::is_directory(directory, ignored)) {
        throw Error("there is no directory '" + directory.string() + "'", flag, "create it first");
    }
}

FlagGroup output_flags() {
    return {"Result",
            {{"format", "FORMAT", "text, json or csv (default text)"},
             {"output", "FILE", "write to FILE instead of standard output; complete or not at all", 'o'}}};
}

Output read_output(const Arguments& arguments) {
    Output output;
    const std::string format = arguments.get("format").value_or("text");
    const std::vector<std::string> formats{"text", "json", "csv"};
    if (format == "json") {
        output.format = Format::json;
    } else if (format == "csv") {
        output.format = Format::csv;
    } else if (format != "text") {
        throw Error("unknown format '" + format + "'", "--format",
                    suggestion(format, formats, "use text, json or csv"));
    }
    if (const auto path = arguments.get("output"); path && *path != "-") {
        check_path(*path, "--output");
        output.path = *path;
    }
    output.style.colour = output.path.empty() && output.format == Format::text && terminal_with_colour();
    return output;
}

void write(const Output& output, const std::string& result) {
    if (output.path.empty()) {
        const int reason = write_all(STDOUT_FILENO, result);
        if (reason != 0 && reason != EPIPE) fail("cannot write to standard output", "stdout", reason);
    } else if (is_replaceable(output.path)) {
        write_file(output.path, result);
    } else {
        write_special(output.path, result);
    }
}

}  // namespace headroom
