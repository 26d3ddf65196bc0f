#include "deploy/daemon/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>

#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

namespace reflection = grpc::reflection::v1;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// The file and the files that it imports, each once, `file` first.
void AddFiles(const FileDescriptor* file, std::set<const FileDescriptor*>* added,
              reflection::FileDescriptorResponse* out) {
  if (!added->insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFiles(file->dependency(i), added, out);
}

void SetError(std::string_view what, reflection::ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
  response->mutable_error_response()->set_error_message(
      support::StrCat("not found: ", support::Quote(what)));
}

void SetFile(const FileDescriptor* file, std::string_view what,
             reflection::ServerReflectionResponse* response) {
  if (file == nullptr) return SetError(what, response);
  std::set<const FileDescriptor*> added;
  AddFiles(file, &added, response->mutable_file_descriptor_response());
}

const FileDescriptor* FileOfExtension(const reflection::ExtensionRequest& request) {
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const Descriptor* type = pool->FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return nullptr;
  const FieldDescriptor* field = pool->FindExtensionByNumber(type, request.extension_number());
  return field == nullptr ? nullptr : field->file();
}

void SetExtensionNumbers(const std::string& name, reflection::ServerReflectionResponse* response) {
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const Descriptor* type = pool->FindMessageTypeByName(name);
  if (type == nullptr) return SetError(name, response);
  std::vector<const FieldDescriptor*> fields;
  pool->FindAllExtensions(type, &fields);
  auto* numbers = response->mutable_all_extension_numbers_response();
  numbers->set_base_type_name(name);
  for (const FieldDescriptor* field : fields) numbers->add_extension_number(field->number());
}

}  // namespace

grpc::Status ReflectionService::ServerReflectionInfo(
    grpc::ServerContext*, grpc::ServerReaderWriter<reflection::ServerReflectionResponse,
                                                   reflection::ServerReflectionRequest>* stream) {
  reflection::ServerReflectionRequest request;
  while (stream->Read(&request)) {
    reflection::ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    Answer(request, &response);
    if (!stream->Write(response)) break;
  }
  return grpc::Status::OK;
}

void ReflectionService::Answer(const reflection::ServerReflectionRequest& request,
                               reflection::ServerReflectionResponse* response) const {
  using Request = reflection::ServerReflectionRequest;
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      return SetFile(pool->FindFileByName(request.file_by_filename()), request.file_by_filename(),
                     response);
    case Request::kFileContainingSymbol:
      return SetFile(pool->FindFileContainingSymbol(request.file_containing_symbol()),
                     request.file_containing_symbol(), response);
    case Request::kFileContainingExtension:
      return SetFile(FileOfExtension(request.file_containing_extension()),
                     request.file_containing_extension().containing_type(), response);
    case Request::kAllExtensionNumbersOfType:
      return SetExtensionNumbers(request.all_extension_numbers_of_type(), response);
    case Request::kListServices:
      for (const std::string& name : services_) {
        response->mutable_list_services_response()->add_service()->set_name(name);
      }
      response->mutable_list_services_response();  // set, even without services
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  response->mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
  response->mutable_error_response()->set_error_message("the request asks for nothing");
}

}  // namespace tilewright::daemon
