// SPDX-License-Identifier: Apache-2.0
#include "tests/chromium.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>

extern char** environ;

namespace headroom {

namespace {

constexpr int patience_ms = 40'000;  ///< for one answer, on a busy machine of two cores

std::string from_base64(const std::string& text) {
    static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    unsigned value = 0;
    int bits = 0;
    for (const char c : text) {
        const std::size_t digit = digits.find(c);
        if (digit == std::string::npos) break;
        value = (value << 6U) | static_cast<unsigned>(digit);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        bytes += static_cast<char>((value >> static_cast<unsigned>(bits)) & 0xffU);
    }
    return bytes;
}

}  // namespace

std::optional<std::string> find_chromium() {
    for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
        if (::access(path, X_OK) == 0) return path;
    }
    return std::nullopt;
}

Chromium::Chromium(const std::string& program) {
    std::vector<std::string> words{program,
                                   "--headless",
                                   "--no-sandbox",
                                   "--disable-gpu",
                                   "--disable-quic",
                                   "--no-first-run",
                                   "--disable-background-networking",
                                   "--disable-component-update",
                                   "--disable-sync",
                                   "--disable-extensions",
                                   "--hide-scrollbars",
                                   "--remote-debugging-pipe",
                                   "--user-data-dir=" + profile_.path("profile"),
                                   "about:blank"};
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);

    // The program reads commands from descriptor 3 and writes to 4. Ours are moved out of their way first.
    std::array<int, 2> commands{}, answers{};
    if (::pipe(commands.data()) != 0 || ::pipe(answers.data()) != 0) throw std::runtime_error("no pipe");
    for (int* end : {&commands[0], &commands[1], &answers[0], &answers[1]}) {
        const int high = ::fcntl(*end, F_DUPFD_CLOEXEC, 10);
        ::close(*end);
        *end = high;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, commands[0], 3);
    posix_spawn_file_actions_adddup2(&actions, answers[1], 4);
    const int failed = posix_spawn(&child_, program.c_str(), &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(commands[0]);
    ::close(answers[1]);
    to_ = commands[1];
    from_ = answers[0];
    if (failed != 0) throw std::runtime_error("cannot start " + program);
    const Json target = call("Target.createTarget", {{"url", "about:blank"}});
    session_ = call("Target.attachToTarget", {{"targetId", target["targetId"]}, {"flatten", true}})["sessionId"];
    for (const char* domain : {"Page", "Runtime", "Log", "Network"}) call(std::string(domain) + ".enable");
}

Chromium::~Chromium() {
    ::close(to_);
    ::close(from_);
    if (child_ > 0) {
        ::kill(child_, SIGTERM);
        int status = 0;
        ::waitpid(child_, &status, 0);
    }
}

void Chromium::open(const std::string& file, int width, int height, bool dark) {
    call("Page.navigate", {{"url", "about:blank"}});
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
    call("Emulation.setEmulatedMedia",
         {{"media", ""}, {"features", {{{"name", "prefers-color-scheme"}, {"value", dark ? "dark" : "light"}}}}});
    page_ = "file://" + file;
    seen_.clear();
    complaints_.clear();
    requests_.clear();
    call("Page.navigate", {{"url", page_}});
    wait_for("Page.loadEventFired");
    evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
}

Chromium::Json Chromium::evaluate(const std::string& expression) {
    const Json answer =
        call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
    if (answer.contains("exceptionDetails")) throw std::runtime_error(answer["exceptionDetails"].dump());
    return answer["result"].value("value", Json());
}

int Chromium::page_height() { return call("Page.getLayoutMetrics")["cssContentSize"]["height"]; }

void Chromium::screenshot(const std::string& file, int top, int height) {
    const Json width = call("Page.getLayoutMetrics")["cssContentSize"]["width"];
    const Json clip{{"x", 0}, {"y", top}, {"width", width}, {"height", height}, {"scale", 1}};
    const Json answer =
        call("Page.captureScreenshot", {{"format", "png"}, {"captureBeyondViewport", true}, {"clip", clip}});
    std::ofstream(file, std::ios::binary) << from_base64(answer["data"]);
}

std::string Chromium::print() {
    constexpr double a4_width = 8.27, a4_height = 11.69;  // inches
    return from_base64(call("Page.printToPDF",
                            {{"paperWidth", a4_width}, {"paperHeight", a4_height}, {"printBackground", true}})["data"]);
}

void Chromium::emulate_paper() {
    constexpr int width = 717;  // A4 less two margins of 1 cm, at 96 pixels an inch
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", 1000}, {"deviceScaleFactor", 1}, {"mobile", false}});
    call("Emulation.setEmulatedMedia", {{"media", "print"}, {"features", Json::array()}});
}

Chromium::Json Chromium::call(const std::string& method, const Json& parameters) {
    Json message{{"id", ++last_id_}, {"method", method}, {"params", parameters}};
    if (!session_.empty()) message["sessionId"] = session_;
    std::string text = message.dump();
    text += '\0';
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t count = ::write(to_, text.data() + done, text.size() - done);
        if (count <= 0) throw std::runtime_error("Chromium does not listen");
        done += static_cast<std::size_t>(count);
    }
    while (true) {
        Json answer = receive();
        if (answer.value("id", 0) != last_id_) {
            note(answer);
            continue;
        }
        if (answer.contains("error")) throw std::runtime_error(method + ": " + answer["error"].dump());
        return answer["result"];
    }
}

void Chromium::wait_for(const std::string& event) {
    while (std::find(seen_.begin(), seen_.end(), event) == seen_.end()) note(receive());
}

Chromium::Json Chromium::receive() {
    while (true) {
        if (const std::size_t end = buffer_.find('\0'); end != std::string::npos) {
            Json message = Json::parse(buffer_.substr(0, end));
            buffer_.erase(0, end + 1);
            return message;
        }
        pollfd waiting{from_, POLLIN, 0};
        if (::poll(&waiting, 1, patience_ms) <= 0) throw std::runtime_error("Chromium does not answer");
        std::array<char, 65536> chunk{};
        const ssize_t count = ::read(from_, chunk.data(), chunk.size());
        if (count <= 0) throw std::runtime_error("Chromium has gone");
        buffer_.append(chunk.data(), static_cast<std::size_t>(count));
    }
}

void Chromium::note(const Json& event) {
    const std::string method = event.value("method", "");
    seen_.push_back(method);
    const bool complains =
        method == "Log.entryAdded" || method == "Runtime.consoleAPICalled" || method == "Runtime.exceptionThrown";
    if (complains) complaints_.push_back(event["params"].dump());
    if (method != "Network.requestWillBeSent") return;
    const std::string address = event["params"]["request"]["url"];
    if (address != page_ && !address.starts_with("data:")) requests_.push_back(address);
}

}  // namespace headroom
