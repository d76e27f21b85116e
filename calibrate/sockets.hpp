// SPDX-License-Identifier: Apache-2.0
// TCP between the processes of a job, every wait bounded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/ranks.hpp"

namespace headroom {

using SocketClock = std::chrono::steady_clock;
SocketClock::time_point after_seconds(double seconds);

/// A file descriptor that closes itself.
class Socket {
 public:
    explicit Socket(int file) : file_(file) {}
    Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(file_, other.file_);
        return *this;
    }
    ~Socket();
    int get() const { return file_; }

 private:
    int file_;
};

/// False when the peer is gone or the time is up.
bool receive_all(const Socket& socket, void* data, std::size_t size, SocketClock::time_point end);
bool send_all(const Socket& socket, const void* data, std::size_t size, SocketClock::time_point end);

/// Rank 0: one connection from every other rank, in their order; the first is unused. Throws Error naming the ranks
/// that did not come.
std::vector<Socket> accept_others(const JobPlace& place, SocketClock::time_point end);
/// The others: a connection to rank 0, which may start later. Throws Error when it does not answer in time.
Socket connect_to_first(const JobPlace& place, SocketClock::time_point end);

}  // namespace headroom
