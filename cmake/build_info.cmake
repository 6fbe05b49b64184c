# Writes generated/support/build_info.h: version from pyproject.toml, commit from git.
# A tree without git or without commits gets "unknown". Configuring runs again when HEAD moves.

file(STRINGS "${PROJECT_SOURCE_DIR}/pyproject.toml" version_line REGEX "^version *= *\"")
string(REGEX REPLACE "^version *= *\"([^\"]+)\".*" "\\1" QD_VERSION "${version_line}")

set(QD_COMMIT unknown)
find_program(QD_GIT git)
if(QD_GIT)
    execute_process(COMMAND "${QD_GIT}" rev-parse --short=12 HEAD
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        OUTPUT_VARIABLE commit ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
        set(QD_COMMIT "${commit}")
    endif()
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/pyproject.toml")
if(EXISTS "${PROJECT_SOURCE_DIR}/.git/logs/HEAD")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
        "${PROJECT_SOURCE_DIR}/.git/logs/HEAD")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.h.in"
    "${PROJECT_BINARY_DIR}/generated/support/build_info.h" @ONLY)
