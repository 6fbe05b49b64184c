// Golden tests of passes: each tests/cpp/ir/*.qir names the passes to run and what to find after
// them. Lines of a file:
//
//   // run: promote simplify      passes on every function, in order; `pipeline` is all of it up to
//                                 where the target's lacks are written out
//   // fma: no                    the target lacks fused multiply-add
//   // together: yes              it runs sections and streams at the same time
//   // check: text                found somewhere behind the previous match
//   // check-next: text           found in the line behind the previous match
//   // check-not: text            found nowhere between the neighbouring matches
//   // error: text                parsing or verifying fails with this in its message
//
// Behind what `pipeline` leaves stands a line of facts for every group and for every task, then
// what functions find by themselves in the record of who calls them (a piece and its place), and
// where tasks are taken out of their order or may run beside others. Blanks are compared as single
// ones; `{{...}}` in a text is a regular expression.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "pass/names.h"
#include "pass/passes.h"

namespace qd::test {
namespace {

using Run = bool (*)(pass::Session&, ir::Function&);
const std::pair<const char*, Run> kPasses[] = {
#define PASS(name, ...) {#name, pass::name},
#include "pass/passes.inc"
};

std::string squeezed(const std::string& line) {
    std::string out;
    for (const char c : line) {
        if (!std::isspace(static_cast<unsigned char>(c))) {
            out += c;
        } else if (!out.empty() && out.back() != ' ') {
            out += ' ';
        }
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

std::regex pattern(const std::string& text) {
    std::string out;
    for (size_t k = 0; k < text.size(); ++k) {
        const size_t end = text.compare(k, 2, "{{") == 0 ? text.find("}}", k) : std::string::npos;
        if (end != std::string::npos) {
            out += "(?:" + text.substr(k + 2, end - k - 2) + ")";
            k = end + 1;
        } else {
            if (std::string_view("\\^$.|?*+()[]{}").find(text[k]) != std::string_view::npos)
                out += '\\';
            out += text[k];
        }
    }
    return std::regex(out);
}

struct Check {
    std::string kind, text;
};

std::string text_of(const pass::Record& record) {
    std::string out;
    for (const pass::Record::Piece& p : record.pieces)
        out += (p.kind == pass::Input::Kind::binding ? " field " : " ") + std::to_string(p.from) +
               "@" + std::to_string(p.to);
    return out;
}

std::string text_of(const pass::Turns& t) {
    std::string out;
    if (t.gate >= 0)
        out += ", behind " + std::to_string(t.behind) + " if not " + std::to_string(t.gate);
    if (t.again >= 0) out += ", from " + std::to_string(t.from) + " if " + std::to_string(t.again);
    if (t.region)
        out += ", branch " + std::to_string(t.branch) + " of region " + std::to_string(t.region);
    return out;
}

std::string facts_of(const pass::Plan& plan) {
    std::string out;
    for (size_t k = 0; k < plan.groups.size(); ++k) {
        const pass::Group& g = plan.groups[k];
        out += "group " + std::to_string(k) + ": " + ir::info(g.op).name;
        if (g.parent >= 0) out += " in group " + std::to_string(g.parent);
        if (g.flag >= 0) out += ", flag " + std::to_string(g.flag);
        out += "\n";
    }
    constexpr const char* kShapes[] = {"thread", "block", "grid"};
    constexpr const char* kWords[] = {"", "launch key", "results", "temps", "partials"};
    for (const pass::Task& t : plan.tasks) {
        out += "task " + t.name + ": " + kShapes[int(t.shape)];
        if (t.block_dim) out += " by " + std::to_string(t.block_dim);
        if (t.fixed_mapping) out += ", fixed";
        if (t.most_iterations >= 0) out += ", " + std::to_string(t.most_iterations) + " iterations";
        if (t.group >= 0) out += ", in group " + std::to_string(t.group);
        out += ", reads";
        for (const pass::Input& i : t.inputs) {
            const std::string from = std::to_string(i.from);
            out += i.kind == pass::Input::Kind::argument
                       ? " " + from + "+" + std::to_string(i.bytes)
                   : i.kind == pass::Input::Kind::binding ? " field " + from
                                                          : std::string(" ") + kWords[i.from];
        }
        out += ", " + std::to_string(t.private_fields.size()) + " private fields, " +
               std::to_string(t.private_atomics) + " private atomics" + (t.polls ? ", polls" : "") +
               ", record" + text_of(t.record) + "\n";
    }
    if (plan.array_atomics) out += "array atomics\n";
    out += "common record" + text_of(plan.common) + "\n";
    const std::vector<pass::Turns> turns = pass::turns_in_order(plan);
    for (size_t k = 0; k < turns.size(); ++k)
        if (const std::string text = text_of(turns[k]); !text.empty())
            out += "turn of " + plan.tasks[k].name + text + "\n";
    return out;
}

void compare(const std::string& output, const std::vector<Check>& checks) {
    std::vector<std::string> lines;
    std::istringstream in(output);
    for (std::string line; std::getline(in, line);) lines.push_back(squeezed(line));
    size_t at = 0;
    std::vector<std::string> forbidden;
    const auto absent = [&](size_t from, size_t to) {
        for (const std::string& text : forbidden) {
            for (size_t k = from; k < to; ++k) {
                ASSERT_FALSE(std::regex_search(lines[k], pattern(text)))
                    << "found '" << text << "' in\n"
                    << output;
            }
        }
    };
    for (const Check& c : checks) {
        if (c.kind == "check-not") {
            forbidden.push_back(c.text);
            continue;
        }
        size_t found = at;
        while (found < lines.size() && !std::regex_search(lines[found], pattern(c.text))) ++found;
        ASSERT_LT(found, lines.size()) << "no '" << c.text << "' in\n" << output;
        if (c.kind == "check-next") {
            ASSERT_EQ(found, at) << "'" << c.text << "' is not next in\n" << output;
        }
        absent(at, found);
        forbidden.clear();
        at = found + 1;
    }
    absent(at, lines.size());
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, Matches) {
    std::ifstream file(GetParam());
    std::stringstream text;
    text << file.rdbuf();
    std::vector<std::string> passes;
    std::vector<Check> checks;
    std::string error;
    pass::PipelineOptions options;
    std::istringstream in(text.str());
    for (std::string line; std::getline(in, line);) {
        std::smatch m;
        if (!std::regex_match(line, m, std::regex(R"(\s*//\s*([a-z-]+):\s*(.*?)\s*)"))) continue;
        const std::string kind = m[1], rest = m[2];
        if (kind == "run") {
            std::istringstream words(rest);
            for (std::string w; words >> w;) passes.push_back(w);
        } else if (kind == "fma") {
            options.target.fused = rest != "no";
        } else if (kind == "together") {
            options.target.runs_together = rest == "yes";
        } else if (kind == "threads") {
            options.target.threads = rest == "yes";
        } else if (kind == "error") {
            error = rest;
        } else if (kind.rfind("check", 0) == 0) {
            checks.push_back({kind, squeezed(rest)});
        }
    }
    std::string output, facts;
    try {
        std::unique_ptr<ir::Module> m = ir::parse(text.str());
        ir::verify(*m);
        for (const std::string& name : passes) {
            if (name == "pipeline") {
                std::string tasks;
                options.on_stage = [&](const char*, const ir::Module& now, auto&&) {
                    tasks = ir::print(now);
                };
                pass::Plan plan = pass::run_pipeline(std::move(m), options);
                ir::verify(*plan.module);
                m = ir::parse(tasks);
                facts = facts_of(plan);
            } else {
                pass::Session s{.m = *m, .options = options};
                const auto order = pass::callees_first(*m);
                s.arrays = pass::find_arrays(*m, order);
                pass::summarise(s, order);
                const auto* found =
                    std::ranges::find_if(kPasses, [&](const auto& p) { return name == p.first; });
                ASSERT_NE(found, std::end(kPasses)) << "no pass " << name;
                for (ir::Function* f : order) {
                    if (name != "seed" || f == &m->kernel()) found->second(s, *f);
                }
            }
            ir::verify(*m);
        }
        output = ir::print(*m);
        // What a dump writes can be read again.
        ASSERT_EQ(ir::print(*ir::parse(output)), output);
    } catch (const std::exception& e) {
        ASSERT_FALSE(error.empty()) << e.what();
        ASSERT_NE(std::string(e.what()).find(error), std::string::npos) << e.what();
        return;
    }
    ASSERT_TRUE(error.empty()) << "no error";
    compare(output + facts, checks);
}

std::vector<std::string> golden_files() {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(QD_TEST_DIR "/ir")) {
        if (entry.path().extension() == ".qir") files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    return files;
}

INSTANTIATE_TEST_SUITE_P(Ir, Golden, testing::ValuesIn(golden_files()), [](const auto& info) {
    return std::filesystem::path(info.param).stem().string();
});

TEST(golden, every_pass_has_a_file) {
    for (const pass::PassRow& p : pass::kPasses) {
        const std::string path = std::string(QD_TEST_DIR "/ir/") + p.name + ".qir";
        EXPECT_TRUE(std::filesystem::exists(path)) << path;
    }
}

}  // namespace
}  // namespace qd::test
