# Writes one C++ source that holds the data files, so that the program needs none of them at run time.
# In: HEADROOM_DATA (paths relative to this folder). Out: the file named by HEADROOM_DATA_SOURCE.
set(entries "")
foreach(path IN LISTS HEADROOM_DATA)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${path})
    file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${path} content)
    string(APPEND entries "    {\"${path}\", R\"headroom(${content})headroom\"},\n")
endforeach()
set(source "// Generated from the data files by configs/embed.cmake.
#include \"configs/builtin_data.hpp\"

namespace headroom {

std::span<const BuiltinFile> builtin_files() {
    static constexpr BuiltinFile files[]{
${entries}    };
    return files;
}

}  // namespace headroom
")
file(CONFIGURE OUTPUT ${HEADROOM_DATA_SOURCE} CONTENT "@source@" @ONLY)
