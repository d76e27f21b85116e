// SPDX-License-Identifier: Apache-2.0
#include "calibrate/crew.hpp"

#include <fmt/format.h>

#include "models/error.hpp"

namespace headroom {
namespace {

constexpr std::uint32_t longest_message = 1 << 20;
constexpr double sending_patience = 30;  // seconds

bool send(const Socket& socket, const Json& message) {
    const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
    const auto size = static_cast<std::uint32_t>(text.size());
    const auto end = after_seconds(sending_patience);
    return send_all(socket, &size, sizeof size, end) && send_all(socket, text.data(), text.size(), end);
}

std::optional<Json> receive(const Socket& socket, double patience) {
    const auto end = after_seconds(patience);
    std::uint32_t size = 0;
    if (!receive_all(socket, &size, sizeof size, end) || size > longest_message) return std::nullopt;
    std::string text(size, '\0');
    if (!receive_all(socket, text.data(), size, end)) return std::nullopt;
    Json message = Json::parse(text, nullptr, false);
    return message.is_object() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace

Crew::Crew(const JobPlace& place, double patience) : sockets_(accept_others(place, after_seconds(patience))) {}

void Crew::tell(const Json& message) {
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
        if (send(sockets_[rank], message)) continue;
        complete_ = false;
        throw Error(fmt::format("process {} is gone", rank), "", "look for its error message; what is written stays",
                    ExitCode::failure);
    }
}

std::vector<Json> Crew::answers(double patience) {
    std::vector<Json> all;
    std::optional<Error> failure;
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
        // Once one is lost the rest has had its time.
        std::optional<Json> answer = receive(sockets_[rank], complete_ ? patience : 1);
        if (!answer) {
            if (!failure) {
                failure.emplace(fmt::format("process {} did not answer within {} s, or is gone", rank, patience), "",
                                "look for its error message; what is written stays", ExitCode::failure);
            }
            complete_ = false;
            continue;
        }
        if (answer->contains("error") && !failure) {
            failure.emplace(fmt::format("process {}: {}", rank, answer->at("error").get<std::string>()),
                            answer->value("where", std::string()), answer->value("hint", std::string()),
                            ExitCode::failure);
        }
        all.push_back(std::move(*answer));
    }
    if (failure) throw *failure;
    return all;
}

CrewMember::CrewMember(const JobPlace& place, double patience)
    : socket_(connect_to_first(place, after_seconds(patience))) {}

std::optional<Json> CrewMember::next(double patience) { return receive(socket_, patience); }

void CrewMember::answer(const Json& message) {
    if (!send(socket_, message)) {
        throw Error("the first process is gone", "", "look for its error message", ExitCode::failure);
    }
}

Json answer_of(const std::exception& error) {
    Json answer{{"error", error.what()}};
    if (const auto* ours = dynamic_cast<const Error*>(&error)) {
        if (!ours->where().empty()) answer["where"] = ours->where();
        if (!ours->hint().empty()) answer["hint"] = ours->hint();
    }
    return answer;
}

}  // namespace headroom
