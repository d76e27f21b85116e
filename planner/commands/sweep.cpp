// SPDX-License-Identifier: Apache-2.0
// headroom sweep: rows as they come, to a file or a pipe that may be cut at any time and continued.
#include "planner/sweep.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "models/error.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/grid_flags.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/time_basis.hpp"
#include "reports/numbers.hpp"
#include "reports/progress.hpp"

namespace headroom {

namespace {

std::atomic<bool> interrupted = false;

/// The first Ctrl-C ends the sweep behind a whole row, the second ends the program.
class Interruptible {
 public:
    Interruptible() : before_(std::signal(SIGINT, on_interrupt)) { interrupted = false; }
    ~Interruptible() { std::signal(SIGINT, before_); }
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;

 private:
    static void on_interrupt(int) {
        if (interrupted.exchange(true)) ::_exit(static_cast<int>(ExitCode::interrupted));
    }
    void (*before_)(int);
};

Synopsis synopsis() {
    std::vector<FlagGroup> groups = grid_flags();
    groups.push_back(time_flags());
    groups.push_back({"Result",
                      {{"format", "FORMAT", "csv (default) or jsonl, one JSON object a line"},
                       {"output", "FILE", "write to FILE, row by row, instead of standard output", 'o'},
                       {"resume", "", "continue a FILE that was cut short; its rows must be of the same grid"}}});
    return {"headroom sweep",
            "--context TOKENS [flags]",
            "Evaluates every combination of the values given, one row each: inputs, a status (fits, does_not_fit, "
            "invalid) with its reason, memory, step time and speed.",
            groups,
            {"headroom sweep --context 128K:4M:x2 --method ulysses,upipe,fpdt -o methods.csv",
             "headroom sweep --nodes 1,2,4 --context 512K:8M:512K --batch 1,2 --format jsonl",
             "headroom sweep --context 1M --set offload.block_inputs=none,pinned,pageable",
             "headroom sweep --grid surface.yaml -o surface.csv --resume"},
            "Rows come in grid order while the sweep runs; Ctrl-C keeps what is done and ends with status 130. Exit "
            "status: 0 ok, 1 failure, 2 usage or bad input, 130 interrupted."};
}

[[noreturn]] void fail(const std::string& what, const std::string& where) {
    throw Error(what + ": " + std::strerror(errno), where, "check the disk and the permissions", ExitCode::failure);
}

/// Where rows go. Closes what it opened.
class Rows {
 public:
    Rows(const std::string& path, bool resume) : path_(path) {
        if (path.empty()) return;
        const int how = resume ? O_RDWR : O_WRONLY | O_CREAT | O_TRUNC;
        file_ = ::open(path.c_str(), how | O_CLOEXEC, 0666);
        if (file_ < 0) fail(resume ? "cannot continue the output" : "cannot open the output", path);
    }
    ~Rows() {
        if (file_ != STDOUT_FILENO) ::close(file_);
    }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

    std::string read() const {
        std::array<char, 1 << 16> buffer{};
        const ssize_t count = ::read(file_, buffer.data(), buffer.size());
        if (count < 0) fail("cannot read what is there", path_);
        return {buffer.data(), static_cast<std::size_t>(count)};
    }
    /// Cuts what follows the whole rows, and goes on behind them.
    void continue_at(std::int64_t bytes) const {
        if (::ftruncate(file_, bytes) != 0 || ::lseek(file_, bytes, SEEK_SET) < 0) {
            fail("cannot continue the output", path_);
        }
    }
    /// False when the reader went away.
    bool write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t count = ::write(file_, text.data(), text.size());
            if (count < 0 && errno == EINTR) continue;
            if (count < 0 && errno == EPIPE) return false;
            if (count < 0) fail("cannot write the output", path_.empty() ? "stdout" : path_);
            text.remove_prefix(static_cast<std::size_t>(count));
        }
        return true;
    }

 private:
    std::string path_;
    int file_ = STDOUT_FILENO;
};

/// Rows of the file that can stay; the file ends behind them.
std::int64_t keep_whole_rows(const Rows& rows, const Grid& grid, const RowWriter& writer, const std::string& path) {
    const WholeRows whole = whole_rows([&] { return rows.read(); }, writer.heading());
    const char* hint = "leave out --resume to begin again, or name another file";
    if (!whole.heading && whole.bytes > 0) {
        throw Error("the file begins with other columns", "--resume " + path, hint);
    }
    if (whole.count > grid.size()) {
        throw Error(fmt::format("the file has {} rows, the grid {}", whole.count, grid.size()), "--resume " + path,
                    hint);
    }
    Evaluator evaluator;
    SweepCounts ignored;
    if (whole.count > 0 && (writer.row(0, evaluator, ignored) != whole.first ||
                            writer.row(whole.count - 1, evaluator, ignored) != whole.last)) {
        throw Error("the file holds rows of another grid", "--resume " + path, hint);
    }
    rows.continue_at(whole.heading ? whole.bytes : 0);
    if (!whole.heading) rows.write(writer.heading());
    return whole.count;
}

RowFormat read_format(const Arguments& arguments) {
    const std::string format = arguments.get("format").value_or("csv");
    if (format == "csv") return RowFormat::csv;
    if (format == "jsonl") return RowFormat::json_lines;
    throw Error("unknown format '" + format + "'", "--format",
                suggestion(format, {"csv", "jsonl"}, "use csv or jsonl"));
}

}  // namespace

Synopsis sweep_synopsis() { return synopsis(); }

ExitCode sweep_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const RowFormat format = read_format(arguments);
    const std::string path = arguments.get("output").value_or("-") == "-" ? "" : *arguments.get("output");
    const bool resume = arguments.has("resume");
    if (resume && path.empty()) throw Error("there is nothing to continue", "--resume", "name the file with -o");
    const Grid grid = read_grid(arguments);
    std::vector<TimeBasis> bases;
    for (const Cluster& cluster : grid.clusters) bases.push_back(read_time_basis(arguments, cluster));
    const RowWriter writer(grid, bases, format);

    const Interruptible until_done;
    const Rows rows(path, resume);
    const std::int64_t kept = resume ? keep_whole_rows(rows, grid, writer, path) : 0;
    bool reading = resume || rows.write(writer.heading());

    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    const auto seconds = [] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    Progress progress("rows", grid.size(), kept, seconds, [](std::string_view text) {
        fmt::print(stderr, "{}", text);
        std::fflush(stderr);
    });
    if (reading) {
        run_sweep(grid, writer, kept, interrupted, [&](std::string_view text, std::int64_t done) {
            reading = rows.write(text);
            if (terminal) progress.update(done);
            return reading;
        });
    }
    progress.finish();
    return interrupted ? ExitCode::interrupted : ExitCode::ok;
}

}  // namespace headroom
