// `tilewright certs`: a private certificate authority and the identities that it signs. Local files
// only: the owner of the authority's folder decides who belongs to the fleet.
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct CertsOptions {
  std::string authority;             // folder of the authority
  std::string kind;                  // tracker, tuner, agent or client
  std::string name;                  // of the authority, or the subject of a certificate
  std::vector<std::string> hosts;    // what clients dial
  std::string identity;              // folder of the identity; empty: AUTHORITY/issued/NAME
  std::string request;               // file of a request to sign
  std::vector<std::string> revoked;  // identity folders, certificate files or serial numbers
  std::string tickets;               // file of a tracker (--enrol-tickets)
  double hours = 1;                  // validity of a ticket
  int days = 0;                      // 0: the default of the command
  OutputFormat format = OutputFormat::kTable;
};

// Each returns an exit code.
int CertsInit(const CertsOptions& options);
int CertsIssue(const CertsOptions& options);
int CertsRenew(const CertsOptions& options);
// On the machine of the identity: makes its key and a request for a certificate.
int CertsRequest(const CertsOptions& options);
// On the authority's machine: signs a request.
int CertsSign(const CertsOptions& options);
// Makes a ticket with which a new agent gets its certificate from the tracker.
int CertsTicket(const CertsOptions& options);
// Adds a new authority to the old ones, or (retire) removes the old ones.
int CertsRotate(const CertsOptions& options, bool retire);
// Puts certificates on the authority's list of revoked ones.
int CertsRevoke(const CertsOptions& options);
// What the authority has signed: who, until when, revoked or not; ended ones with `all`.
int CertsList(const CertsOptions& options, bool all);
// Lists the certificates of an authority, an identity or a PEM file, with their faults; returns 1
// if there is a fault.
int CertsShow(const std::string& path, OutputFormat format);

}  // namespace tilewright::cli
