// SPDX-License-Identifier: Apache-2.0
// headroom sweep: rows as they come, to a file or a pipe that may be cut at any time and continued.
#include "planner/sweep.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <set>

#include "models/error.hpp"
#include "planner/commands/command_line.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/grid_flags.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/program_version.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/sweep_html.hpp"
#include "reports/numbers.hpp"
#include "reports/progress.hpp"
#include "reports/table.hpp"

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
    groups.push_back(
        {"Result",
         {{"format", "FORMAT",
           "csv (default), jsonl with one JSON object a line, or html: a page of what they come to"},
          {"output", "FILE", "write to FILE, row by row, instead of standard output", 'o'},
          {"resume", "", "continue a FILE that was cut short, of the same grid; begin it where it is missing"}}});
    return {
        "headroom sweep",
        "--context TOKENS [flags]",
        "Evaluates every combination of the values given, one row each: inputs, a status (fits, does_not_fit, "
        "invalid) with its reason, memory, step time and speed.",
        groups,
        {"headroom sweep --context 128K:4M:x2 --method ulysses,upipe,fpdt -o methods.csv",
         "headroom sweep --nodes 1,2,4 --context 512K:8M:512K --batch 1,2 --format jsonl",
         "headroom sweep --context 1M --set offload.block_inputs=none,pinned,pageable",
         "headroom sweep --grid surface.yaml -o surface.csv --resume",
         "headroom sweep --grid surface.yaml --format html -o surface.html"},
        "Rows come in grid order while the sweep runs; Ctrl-C keeps what is done and ends with status 130. The page "
        "holds counts, the fastest and the leanest configurations, not the rows. Exit "
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
        const int how = O_CREAT | (resume ? O_RDWR : O_WRONLY | O_TRUNC);
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
std::int64_t keep_whole_rows(const Rows& rows, const Grid& grid, const std::vector<TimeBasis>& bases,
                             const RowWriter& writer, const std::string& path) {
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
    const auto line = [&](std::int64_t index) { return writer.line(evaluate_row(grid, bases, index, evaluator)); };
    if (whole.count > 0 && (line(0) != whole.first || line(whole.count - 1) != whole.last)) {
        throw Error("the file holds rows of another grid", "--resume " + path, hint);
    }
    rows.continue_at(whole.heading ? whole.bytes : 0);
    if (!whole.heading) rows.write(writer.heading());
    return whole.count;
}

enum class SweepFormat { csv, json_lines, html };

SweepFormat read_format(const Arguments& arguments) {
    const std::string format = arguments.get("format").value_or("csv");
    if (format == "csv") return SweepFormat::csv;
    if (format == "jsonl") return SweepFormat::json_lines;
    if (format == "html") return SweepFormat::html;
    throw Error("unknown format '" + format + "'", "--format",
                suggestion(format, {"csv", "jsonl", "html"}, "use csv, jsonl or html"));
}

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress progress_of(std::int64_t rows, std::int64_t already) {
    return {"rows", rows, already, seconds_now, [](std::string_view text) {
                fmt::print(stderr, "{}", text);
                std::fflush(stderr);
            }};
}

bool on_terminal() { return ::isatty(STDERR_FILENO) == 1; }

/// A sweep of nothing but invalid rows is a mistake that a user would otherwise find only in the file.
class InvalidRows {
 public:
    void add(const SweepPiece& piece) {
        count_ += piece.counts[SweepStatus::invalid];
        if (first_.empty()) first_ = piece.first_invalid;
    }
    void say(std::int64_t rows) const {
        if (count_ < rows || rows == 0) return;
        fmt::print(stderr, "warning: every row is invalid, the first because {}\n", first_);
    }

 private:
    std::int64_t count_ = 0;
    std::string first_;
};

void note_row(SweepPiece& piece, const SweepRow& row) {
    ++piece.counts[row.status];
    if (row.status == SweepStatus::invalid && piece.first_invalid.empty()) piece.first_invalid = row.reason;
}

void write_rows(const Arguments& arguments, const Grid& grid, const std::vector<TimeBasis>& bases, RowFormat format) {
    const std::string path = arguments.get("output").value_or("-") == "-" ? "" : *arguments.get("output");
    const bool resume = arguments.has("resume");
    if (resume && path.empty()) throw Error("there is nothing to continue", "--resume", "name the file with -o");
    if (!path.empty()) check_path(path, "--output");
    const RowWriter writer(grid, format);
    const Rows rows(path, resume);
    const std::int64_t kept = resume ? keep_whole_rows(rows, grid, bases, writer, path) : 0;
    if (!resume && !rows.write(writer.heading())) return;
    Progress progress = progress_of(grid.size(), kept);
    const auto make = [&](std::int64_t index, Evaluator& evaluator, SweepPiece& piece) {
        const SweepRow row = evaluate_row(grid, bases, index, evaluator);
        note_row(piece, row);
        piece.text += writer.line(row);
    };
    InvalidRows invalid;
    run_sweep(grid.size(), make, kept, interrupted, [&, terminal = on_terminal()](const SweepPiece& piece) {
        const bool reading = rows.write(piece.text);
        invalid.add(piece);
        if (terminal) progress.update(piece.last);
        return reading;
    });
    progress.finish();
    if (!interrupted) invalid.say(grid.size() - kept);
}

void write_page(const Arguments& arguments, const Words& words, const Grid& grid, const std::vector<TimeBasis>& bases) {
    const auto path = arguments.get("output");
    if (!path) throw Error("no file is named", "--format html", "add e.g. -o surface.html");
    if (arguments.has("resume")) {
        throw Error("a page cannot be continued", "--resume", "leave it out, or sweep to a CSV file");
    }
    Output output;
    if (*path != "-") {
        check_path(*path, "--output");
        output.path = *path;
    }
    const std::string date = report_date(std::time(nullptr));
    SweepSummarizer summarizer(grid);
    Progress progress = progress_of(grid.size(), 0);
    const auto make = [&](std::int64_t index, Evaluator& evaluator, SweepPiece& piece) {
        piece.rows.push_back(evaluate_row(grid, bases, index, evaluator));
        note_row(piece, piece.rows.back());
    };
    InvalidRows invalid;
    run_sweep(grid.size(), make, 0, interrupted, [&, terminal = on_terminal()](const SweepPiece& piece) {
        for (const SweepRow& row : piece.rows) summarizer.add(row);
        invalid.add(piece);
        if (terminal) progress.update(piece.last);
        return true;
    });
    progress.finish();
    if (!interrupted) invalid.say(grid.size());
    Words rows_words = without_flag(without_flag(words, "format"), "output", 'o');
    rows_words.insert(rows_words.end(), {"-o", "rows.csv"});
    const SweepOrigin origin{{command_line("headroom sweep", words), program_version(), date},
                             command_line("headroom sweep", rows_words),
                             grid.size()};
    write(output, html(sweep_page(summarizer.take(), grid, bases, origin)));
}

/// Once for each calibration that lacks a published kernel.
void note_kernels(const Grid& grid, const std::vector<TimeBasis>& bases) {
    const bool said =
        grid.fixed.attention_kernel || std::any_of(grid.axes.begin(), grid.axes.end(),
                                                   [](const GridAxis& axis) { return axis.key == "attention_kernel"; });
    if (said) return;
    std::set<std::string> remarks;
    for (const TimeBasis& basis : bases) remarks.insert(kernel_remark(basis));
    remarks.erase("");
    for (const std::string& remark : remarks) fmt::print(stderr, "headroom: note: {}\n", printable(remark));
}

}  // namespace

Synopsis sweep_synopsis() { return synopsis(); }

ExitCode sweep_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const SweepFormat format = read_format(arguments);
    const Grid grid = read_grid(arguments);
    std::vector<TimeBasis> bases;
    for (const Cluster& cluster : grid.clusters) bases.push_back(read_time_basis(arguments, cluster));
    note_kernels(grid, bases);
    const Interruptible until_done;
    if (format == SweepFormat::html) {
        write_page(arguments, words, grid, bases);
    } else {
        write_rows(arguments, grid, bases, format == SweepFormat::csv ? RowFormat::csv : RowFormat::json_lines);
    }
    return interrupted ? ExitCode::interrupted : ExitCode::ok;
}

}  // namespace headroom
