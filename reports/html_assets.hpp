// SPDX-License-Identifier: Apache-2.0
// The pieces of the HTML report, compiled into the program by reports/assets.cmake.
#pragma once

#include <string_view>

namespace headroom::assets {

extern const std::string_view page;           ///< page/page.html, a mustache template
extern const std::string_view table;          ///< page/table.html, its partial
extern const std::string_view style;          ///< page/page.css
extern const std::string_view script;         ///< page/page.js
extern const std::string_view licence;        ///< page/chart-js-licence.txt
extern const std::string_view chart_library;  ///< Chart.js, minified

}  // namespace headroom::assets
