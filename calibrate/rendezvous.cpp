// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "calibrate/ranks.hpp"
#include "calibrate/sockets.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

constexpr std::uint32_t longest_message = 1 << 20;

[[noreturn]] void fail(const std::string& what, const JobPlace& place) {
    throw Error(what, fmt::format("{}:{}", place.address, place.port), "look for the other processes' error messages",
                ExitCode::failure);
}

}  // namespace

std::string broadcast_from_first(const JobPlace& place, const std::string& message, double patience) {
    if (place.size == 1) return message;
    const auto end = after_seconds(patience);
    if (place.rank == 0) {
        const auto size = static_cast<std::uint32_t>(message.size());
        const std::vector<Socket> others = accept_others(place, end);
        for (std::size_t rank = 1; rank < others.size(); ++rank) {
            if (!send_all(others[rank], &size, sizeof size, end) ||
                !send_all(others[rank], message.data(), message.size(), end)) {
                fail(fmt::format("rank {} is gone", rank), place);
            }
        }
        return message;
    }
    const Socket first = connect_to_first(place, end);
    std::uint32_t size = 0;
    if (!receive_all(first, &size, sizeof size, end) || size > longest_message) {
        fail(fmt::format("rank {} got nothing from rank 0", place.rank), place);
    }
    std::string received(size, '\0');
    if (!receive_all(first, received.data(), size, end)) {
        fail(fmt::format("rank {} got nothing from rank 0", place.rank), place);
    }
    return received;
}

}  // namespace headroom
