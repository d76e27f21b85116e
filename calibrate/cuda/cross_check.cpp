// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/cross_check.hpp"

#include <stdexcept>

#include "calibrate/cuda/cupti.hpp"
#include "calibrate/cuda/stream_measurement.hpp"

namespace headroom {
namespace {

class CrossCheck : public PreparedProbe {
 public:
    explicit CrossCheck(std::unique_ptr<PreparedProbe> of) : of_(std::move(of)) {
        if (dynamic_cast<StreamMeasurement*>(of_.get()) == nullptr) throw std::logic_error("no work on one stream");
        traced_seconds([] {});  // waived before anything is timed
    }
    Check verify() override { return of_->verify(); }

    /// Events and CUPTI on the same batch; what is returned is the events' word.
    double run() override {
        double by_events = 0;
        const double by_cupti = traced_seconds([&] { by_events = of_->run(); });
        events_.push_back(by_events);
        cupti_.push_back(by_cupti / dynamic_cast<StreamMeasurement&>(*of_).last_runs());
        return by_events;
    }

    Json notes() override {
        const double by_events = summarise(events_).median, by_cupti = summarise(cupti_).median;
        return {{"seconds_by_cupti", by_cupti}, {"events_over_cupti", by_cupti > 0 ? by_events / by_cupti : 0}};
    }

 private:
    std::unique_ptr<PreparedProbe> of_;
    std::vector<double> events_, cupti_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_cross_check(std::unique_ptr<PreparedProbe> of) {
    return std::make_unique<CrossCheck>(std::move(of));
}

}  // namespace headroom
