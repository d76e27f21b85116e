// SPDX-License-Identifier: Apache-2.0
// A study as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "planner/study.hpp"
#include "planner/validate.hpp"
#include "reports/html.hpp"

namespace headroom {

struct ReportOrigin {
    std::string command;  ///< that writes the page again
    std::string program;  ///< name and version
    std::string date;
};

/// Without a validation, the page says nothing of accuracy.
HtmlPage report_page(const Study& study, const ReportOrigin& origin, const Validation* validation = nullptr);

// The pieces of the page.
HtmlSection longest_section(const Study& study);
HtmlSection memory_section(const Study& study);
HtmlSection speed_section(const Study& study);
HtmlSection memory_curve_section(const Study& study);
HtmlSection chunk_section(const Study& study);
HtmlSection time_section(const Study& study);
HtmlSection layer_section(const Study& study);
HtmlSection input_section(const Study& study);
HtmlSection constant_section(const Study& study);
HtmlSection accuracy_section(const Validation& validation);

// Words and numbers that the pieces share.
std::string display_name(Method method);
std::string display_name(Part part);
Colour colour_of(Method method);
Colour colour_of(Part part);
/// "3M tokens"; with the exact number when it is not the same.
std::string tokens_in_words(Tokens tokens);
/// "403", "12.4", "1.25": three digits or all before the point.
std::string three_digits(double value);
std::string speed_with_range(const StepPrediction& step);
/// "UPipe 5.2M, FPDT 4M and Ulysses 3.2M".
std::string listed(const std::vector<std::string>& items);
/// Powers of two as an axis.
Axis token_axis(const std::string& title, Tokens least, Tokens most);
/// Ticks at whole multiples of a round number of tokens.
Axis linear_token_axis(Tokens most);
/// 1, 2 and 5 times powers of ten, for a logarithmic axis that holds `least` to `most`.
Axis logarithmic_axis(const std::string& title, double least, double most);
/// "GPU: 80.00 GiB".
std::string capacity_label(const Cluster& cluster);
/// "8 GPUs of h100-sxm-80gb".
std::string machine(const Cluster& cluster);
Bytes needed(const Plan& plan);

}  // namespace headroom
