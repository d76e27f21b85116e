// SPDX-License-Identifier: Apache-2.0
// The processes of a job that probe together: the first leads and speaks to each of the others, which do what they are
// told and answer. Messages are JSON, each behind its length.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/probe.hpp"
#include "calibrate/sockets.hpp"

namespace headroom {

/// The leader's side.
class Crew {
 public:
    /// Waits for all other processes. Throws Error naming those that did not come within `patience` seconds.
    Crew(const JobPlace& place, double patience);

    int others() const { return static_cast<int>(sockets_.size()) - 1; }
    /// To every other process. Throws Error with the rank that is gone.
    void tell(const Json& message);
    /// What every other process answered to the last message, by rank - 1. Throws Error with the rank that says nothing
    /// within `patience` seconds, is gone, or answered with an error; the others' answers are taken in first.
    std::vector<Json> answers(double patience);
    /// False when a process is gone: nothing can be done together any more.
    bool complete() const { return complete_; }

 private:
    std::vector<Socket> sockets_;  ///< by rank; the first is unused
    bool complete_ = true;
};

/// One of the others.
class CrewMember {
 public:
    CrewMember(const JobPlace& place, double patience);
    /// The leader's next message; nothing when it has ended or is silent for longer than `patience` seconds.
    std::optional<Json> next(double patience);
    void answer(const Json& message);

 private:
    Socket socket_;
};

/// An answer that says what went wrong, for Crew::answers to throw.
Json answer_of(const std::exception& error);

}  // namespace headroom
