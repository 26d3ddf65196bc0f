// Fields of rows to and from JSON objects. Internal to tuner_server/log; pure values.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tuner_server/log/log_types.h"

namespace tilewright::log {

using Json = nlohmann::ordered_json;

// Puts a field under its name. Numbers that JSON cannot say (nan, inf) become null.
class JsonWriter {
 public:
  explicit JsonWriter(Json* object) : object_(*object) {}

  void operator()(std::string_view name, JobState v) { Put(name, JobStateName(v)); }
  void operator()(std::string_view name, TrialState v) { Put(name, TrialStateName(v)); }
  void operator()(std::string_view name, Outcome v) { Put(name, OutcomeName(v)); }
  template <typename T>
  void operator()(std::string_view name, const T& v) {
    object_[std::string(name)] = v;
  }

 private:
  void Put(std::string_view name, std::string_view text) {
    object_[std::string(name)] = std::string(text);
  }
  Json& object_;
};

// Takes a field from its name. A missing one keeps its default; one of another type is an error.
class JsonReader {
 public:
  explicit JsonReader(const Json& object) : object_(object) {}

  // The first field whose value did not fit; empty when all did.
  const std::string& bad_field() const { return bad_field_; }

  void operator()(std::string_view name, std::string& v) {
    With(name, [&v](const Json& j) {
      if (!j.is_string()) return false;
      v = j.get_ref<const std::string&>();
      return true;
    });
  }
  void operator()(std::string_view name, int64_t& v) {
    With(name, [&v](const Json& j) {
      if (!j.is_number_integer()) return false;
      v = j.get<int64_t>();
      return true;
    });
  }
  void operator()(std::string_view name, uint64_t& v) {
    With(name, [&v](const Json& j) {
      if (!j.is_number_integer()) return false;
      v = j.get<uint64_t>();
      return true;
    });
  }
  void operator()(std::string_view name, bool& v) {
    With(name, [&v](const Json& j) {
      if (!j.is_boolean()) return false;
      v = j.get<bool>();
      return true;
    });
  }
  void operator()(std::string_view name, double& v) {
    With(name, [&v](const Json& j) { return Number(j, &v); });
  }
  void operator()(std::string_view name, JobState& v) { Word(name, v, ParseJobState); }
  void operator()(std::string_view name, TrialState& v) { Word(name, v, ParseTrialState); }
  void operator()(std::string_view name, Outcome& v) { Word(name, v, ParseOutcome); }
  void operator()(std::string_view name, std::vector<float>& v) { Numbers(name, v); }
  void operator()(std::string_view name, std::vector<double>& v) { Numbers(name, v); }
  void operator()(std::string_view name, std::vector<std::string>& v) {
    With(name, [&v](const Json& j) {
      if (!j.is_array()) return false;
      v.clear();
      for (const Json& item : j) {
        if (!item.is_string()) return false;
        v.push_back(item.get<std::string>());
      }
      return true;
    });
  }

 private:
  static bool Number(const Json& j, double* v) {
    if (j.is_null()) {
      *v = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    if (!j.is_number()) return false;
    *v = j.get<double>();
    return true;
  }

  template <typename Fn>
  void With(std::string_view name, Fn fn) {
    const auto it = object_.find(std::string(name));
    if (it == object_.end()) return;
    if (!fn(*it) && bad_field_.empty()) bad_field_ = std::string(name);
  }
  template <typename Enum, typename ParseFn>
  void Word(std::string_view name, Enum& v, ParseFn parse) {
    With(name, [&v, parse](const Json& j) {
      if (!j.is_string()) return false;
      const auto parsed = parse(j.get_ref<const std::string&>());
      if (parsed) v = *parsed;
      return parsed.has_value();
    });
  }
  template <typename T>
  void Numbers(std::string_view name, std::vector<T>& v) {
    With(name, [&v](const Json& j) {
      if (!j.is_array()) return false;
      v.clear();
      for (const Json& item : j) {
        double number = 0;
        if (!Number(item, &number)) return false;
        v.push_back(static_cast<T>(number));
      }
      return true;
    });
  }

  const Json& object_;
  std::string bad_field_;
};

}  // namespace tilewright::log
