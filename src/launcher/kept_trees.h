// Syntax trees that outlive the process: parsing is more than half of a cold front end.
//
// A tree follows from the text of its function, which is its key: it cannot be stale. Trees lie
// together by source file, below native/trees; a file's are read when the first function of it is
// needed, and written at a flush point if many functions had to be parsed. Programs that start warm
// need none. Under the GIL.

#pragma once

namespace qd::launcher {

void use_kept_trees();    // from now on, for the whole process
void flush_kept_trees();  // of this session, whose folder it uses

}  // namespace qd::launcher
