// SPDX-License-Identifier: Apache-2.0
// Every other rank connects to rank 0, says a magic number and its rank, and receives length and message.
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "calibrate/ranks.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t magic = 0x48656164726f6f6d;  // tells our peers from port scanners
constexpr std::uint32_t longest_message = 1 << 20;

struct Hello {
    std::uint64_t magic;
    std::int64_t rank;
};

class Socket {
 public:
    explicit Socket(int file) : file_(file) {}
    Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Socket& operator=(Socket&&) = delete;
    ~Socket() {
        if (file_ >= 0) ::close(file_);
    }
    int get() const { return file_; }

 private:
    int file_;
};

bool wait_for(int file, short events, Clock::time_point end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd entry{file, events, 0};
    return ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) > 0;
}

/// False when the peer is gone or the time is up.
bool receive_all(int file, void* data, std::size_t size, Clock::time_point end) {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
        if (!wait_for(file, POLLIN, end)) return false;
        const ssize_t count = ::recv(file, at, size, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        at += count;
        size -= static_cast<std::size_t>(count);
    }
    return true;
}

bool send_all(int file, const void* data, std::size_t size, Clock::time_point end) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
        if (!wait_for(file, POLLOUT, end)) return false;
        const ssize_t count = ::send(file, at, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        at += count;
        size -= static_cast<std::size_t>(count);
    }
    return true;
}

std::string where(const JobPlace& place) { return fmt::format("{}:{}", place.address, place.port); }

[[noreturn]] void fail(const std::string& what, const JobPlace& place, const std::string& hint) {
    throw Error(what, where(place), hint, ExitCode::failure);
}

std::unique_ptr<addrinfo, void (*)(addrinfo*)> look_up(const JobPlace& place, bool listening) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = listening ? AI_PASSIVE : 0;
    addrinfo* found = nullptr;
    const int error =
        ::getaddrinfo(listening ? nullptr : place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found);
    if (error != 0)
        fail(fmt::format("the address is not known: {}", ::gai_strerror(error)), place, "check MASTER_ADDR");
    return {found, ::freeaddrinfo};
}

Socket listen_at(const JobPlace& place) {
    int reason = 0;
    const auto found = look_up(place, true);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
        const int yes = 1;
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 && ::listen(socket.get(), 1024) == 0)
            return socket;
        reason = errno;
    }
    fail(fmt::format("rank 0 cannot listen: {}", std::strerror(reason)), place, "choose another MASTER_PORT");
}

void serve(const JobPlace& place, const std::string& message, Clock::time_point end) {
    const Socket listener = listen_at(place);
    std::vector<bool> served(static_cast<std::size_t>(place.size), false);
    served[0] = true;
    while (std::find(served.begin(), served.end(), false) != served.end()) {
        if (!wait_for(listener.get(), POLLIN, end)) {
            std::string missing;
            for (std::size_t rank = 0; rank < served.size(); ++rank) {
                if (!served[rank]) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
            }
            fail(fmt::format("rank 0 waited in vain for rank {}", missing), place,
                 "look for errors of these ranks, and for a firewall between the nodes");
        }
        const Socket peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        Hello hello{};
        // Whoever does not greet within a second is none of ours.
        const auto soon = std::min(end, Clock::now() + std::chrono::seconds(1));
        if (peer.get() < 0 || !receive_all(peer.get(), &hello, sizeof hello, soon) || hello.magic != magic) continue;
        if (hello.rank <= 0 || hello.rank >= place.size) continue;
        const auto rank = static_cast<std::size_t>(hello.rank);
        if (served[rank]) {
            fail(fmt::format("two processes say they are rank {}", rank), place, "give every process its own rank");
        }
        const auto size = static_cast<std::uint32_t>(message.size());
        served[rank] =
            send_all(peer.get(), &size, sizeof size, end) && send_all(peer.get(), message.data(), message.size(), end);
    }
}

/// Rank 0 may start later: tried again until the time is up.
std::string ask(const JobPlace& place, Clock::time_point end) {
    do {
        const auto found = look_up(place, false);
        for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
            const Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
            if (socket.get() < 0 || ::connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
            const Hello hello{magic, place.rank};
            std::uint32_t size = 0;
            if (!send_all(socket.get(), &hello, sizeof hello, end)) continue;
            if (!receive_all(socket.get(), &size, sizeof size, end) || size > longest_message) continue;
            std::string message(size, '\0');
            if (receive_all(socket.get(), message.data(), size, end)) return message;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } while (Clock::now() < end);
    fail(fmt::format("rank {} got no answer from rank 0", place.rank), place,
         "check that rank 0 runs, MASTER_ADDR, MASTER_PORT, and the firewall");
}

}  // namespace

std::string broadcast_from_first(const JobPlace& place, const std::string& message, double patience) {
    if (place.size == 1) return message;
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience));
    if (place.rank != 0) return ask(place, end);
    serve(place, message, end);
    return message;
}

}  // namespace headroom
