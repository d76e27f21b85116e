// SPDX-License-Identifier: Apache-2.0
#include "calibrate/probe_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "models/error.hpp"

namespace headroom {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path, int reason) {
    throw Error(what + ": " + std::strerror(reason), path,
                reason == ENOSPC ? "free space there, then --resume this file; the lines before are kept"
                                 : "check the path and the permissions",
                ExitCode::failure);
}

std::string place(const std::string& name, std::size_t line) { return fmt::format("{}:{}", name, line); }

void read_provenance(ProbeFile& file, Json record, const std::string& where) {
    const int schema = record.value("schema", 0);
    if (schema != probe_file_schema) {
        throw Error(fmt::format("probe file schema {} is not known", schema), where,
                    fmt::format("this program reads schema {}", probe_file_schema));
    }
    const int method = record.value("method_version", 0);
    if (method != probe_method_version) {
        throw Error(fmt::format("these probes were taken by method version {}, this program has {}: the figures do "
                                "not compare",
                                method, probe_method_version),
                    where, "run the probes again");
    }
    file.provenance = std::move(record);
}

}  // namespace

ProbeFile parse_probe_file(const std::string& text, const std::string& name) {
    ProbeFile file;
    file.name = std::filesystem::path(name).filename().string();
    std::size_t begin = 0;
    for (std::size_t line = 1; begin < text.size(); ++line) {
        const std::size_t end = text.find('\n', begin);
        if (end == std::string::npos) {
            file.cut = true;
            break;
        }
        Json record = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
        const std::string where = place(name, line);
        if (record.is_discarded() || !record.is_object() || !record.contains("record")) {
            throw Error("this line is no probe record", where, "name a file that headroom calibrate probes wrote");
        }
        if (record["record"] == "provenance") {
            read_provenance(file, std::move(record), where);
        } else if (file.provenance.is_null()) {
            throw Error("the first line must be the provenance record", where,
                        "name a file that headroom calibrate probes wrote");
        } else if (record["record"] == "probe" && record.contains("name") && record.contains("status")) {
            file.records.push_back(std::move(record));
        } else {
            throw Error("this line is no probe record", where, "remove it, or run the probes again");
        }
        begin = end + 1;
        file.whole_bytes = static_cast<std::int64_t>(begin);
    }
    if (file.provenance.is_null()) {
        throw Error("this file holds no complete record", name, "run the probes again, into a new file");
    }
    return file;
}

ProbeFile read_probe_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail("cannot read the probe file", path, errno);
    std::ostringstream text;
    text << in.rdbuf();
    if (in.bad()) fail("cannot read the probe file", path, errno);
    return parse_probe_file(text.str(), path);
}

void require_same_machine(const Json& before, const Json& now, const std::string& path) {
    // Clocks, times and command lines may differ; these make other figures.
    static const Json::json_pointer keys[]{Json::json_pointer("/gpus"), Json::json_pointer("/driver"),
                                           Json::json_pointer("/libraries"), Json::json_pointer("/host/cpu"),
                                           Json::json_pointer("/job/gpus")};
    for (const auto& key : keys) {
        const Json old_value = before.contains(key) ? before.at(key) : Json();
        const Json new_value = now.contains(key) ? now.at(key) : Json();
        if (old_value == new_value) continue;
        throw Error(fmt::format("the file was begun on another machine or software: {} was {}, is {}",
                                key.to_string().substr(1), old_value.dump(), new_value.dump()),
                    path, "write a new file with -o");
    }
}

std::vector<std::string> finished_probes(const ProbeFile& file) {
    std::vector<std::string> names;
    for (const Json& record : file.records) {
        if (record["status"] == "ok" || record["status"] == "waived") names.push_back(record["name"]);
    }
    return names;
}

ProbeWriter ProbeWriter::create(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) {
        throw Error("the file exists", path, "continue it with --resume, or name another with -o");
    }
    if (file < 0) fail("cannot create the probe file", path, errno);
    return {file, path};
}

ProbeWriter ProbeWriter::resume(const std::string& path, std::int64_t keep) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) fail("cannot open the probe file", path, errno);
    ProbeWriter writer(file, path);
    struct ::stat status = {};
    const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);  // a pipe or device has no end to cut
    if (regular && (::ftruncate(file, keep) != 0 || ::lseek(file, keep, SEEK_SET) < 0)) {
        fail("cannot continue the probe file", path, errno);
    }
    return writer;
}

ProbeWriter ProbeWriter::standard_output() { return {::dup(STDOUT_FILENO), "standard output"}; }

ProbeWriter::ProbeWriter(ProbeWriter&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

ProbeWriter::~ProbeWriter() {
    if (file_ >= 0) ::close(file_);
}

void ProbeWriter::write(const Json& record) {
    const std::string line = record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::string_view rest = line;
    while (!rest.empty()) {
        const ssize_t written = ::write(file_, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail("cannot write the probe record", path_, errno);
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
    // Pipes and terminals cannot be synchronised, and need not be.
    if (::fsync(file_) != 0 && errno != EINVAL && errno != EROFS) fail("cannot write the probe record", path_, errno);
}

}  // namespace headroom
