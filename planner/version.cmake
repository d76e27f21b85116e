# Writes OUTPUT with the version and, in a checkout, the commit. Untouched when nothing has changed.
set(commit "")
find_package(Git QUIET)
if(GIT_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --short=9 HEAD
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit)
    set(commit " (${commit})")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once

inline constexpr const char* headroom_version = "headroom @VERSION@@commit@";
]] @ONLY)
