// SPDX-License-Identifier: Apache-2.0
// Every other rank connects to rank 0, says a magic number and its rank, and is greeted back.
#include "calibrate/sockets.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "models/error.hpp"

namespace headroom {
namespace {

using Clock = SocketClock;
constexpr std::uint64_t magic = 0x48656164726f6f6d;  // tells our peers from port scanners

struct Hello {
    std::uint64_t magic;
    std::int64_t rank;
};

bool wait_for(int file, short events, Clock::time_point end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd entry{file, events, 0};
    return ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) > 0;
}

std::string where(const JobPlace& place) { return fmt::format("{}:{}", place.address, place.port); }

[[noreturn]] void fail(const std::string& what, const JobPlace& place, const std::string& hint) {
    throw Error(what, where(place), hint, ExitCode::failure);
}

/// Small messages go out at once, and a node that vanished is noticed.
void set_options(int file) {
    const int yes = 1;
    ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ::setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
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

}  // namespace

Clock::time_point after_seconds(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Socket::~Socket() {
    if (file_ >= 0) ::close(file_);
}

bool receive_all(const Socket& socket, void* data, std::size_t size, Clock::time_point end) {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
        if (!wait_for(socket.get(), POLLIN, end)) return false;
        const ssize_t count = ::recv(socket.get(), at, size, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        at += count;
        size -= static_cast<std::size_t>(count);
    }
    return true;
}

bool send_all(const Socket& socket, const void* data, std::size_t size, Clock::time_point end) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
        if (!wait_for(socket.get(), POLLOUT, end)) return false;
        const ssize_t count = ::send(socket.get(), at, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        at += count;
        size -= static_cast<std::size_t>(count);
    }
    return true;
}

std::vector<Socket> accept_others(const JobPlace& place, Clock::time_point end) {
    const Socket listener = listen_at(place);
    std::vector<Socket> others;
    for (int rank = 0; rank < place.size; ++rank) others.emplace_back(-1);
    const auto is_missing = [&](std::size_t rank) { return rank > 0 && others[rank].get() < 0; };
    const auto missing = [&] {
        std::string names;
        for (std::size_t rank = 0; rank < others.size(); ++rank) {
            if (is_missing(rank)) names += (names.empty() ? "" : ", ") + std::to_string(rank);
        }
        return names;
    };
    while (!missing().empty()) {
        if (!wait_for(listener.get(), POLLIN, end)) {
            fail(fmt::format("rank 0 waited in vain for rank {}", missing()), place,
                 "look for errors of these ranks, and for a firewall between the nodes");
        }
        Socket peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        Hello hello{};
        // Whoever does not greet within a second is none of ours.
        const auto soon = std::min(end, after_seconds(1));
        if (peer.get() < 0 || !receive_all(peer, &hello, sizeof hello, soon) || hello.magic != magic) continue;
        if (hello.rank <= 0 || hello.rank >= place.size) continue;
        const auto rank = static_cast<std::size_t>(hello.rank);
        if (!is_missing(rank)) {
            fail(fmt::format("two processes say they are rank {}", rank), place, "give every process its own rank");
        }
        set_options(peer.get());
        if (send_all(peer, &hello, sizeof hello, end)) others[rank] = std::move(peer);
    }
    return others;
}

Socket connect_to_first(const JobPlace& place, Clock::time_point end) {
    do {
        const auto found = look_up(place, false);
        for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
            Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
            if (socket.get() < 0 || ::connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
            set_options(socket.get());
            const Hello hello{magic, place.rank};
            Hello greeting{};
            if (!send_all(socket, &hello, sizeof hello, end)) continue;
            if (receive_all(socket, &greeting, sizeof greeting, end) && greeting.magic == magic) return socket;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } while (Clock::now() < end);
    fail(fmt::format("rank {} got no answer from rank 0", place.rank), place,
         "check that rank 0 runs, MASTER_ADDR, MASTER_PORT, and the firewall");
}

}  // namespace headroom
