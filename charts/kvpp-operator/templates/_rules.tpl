{{- /*
What the operator may do. tests/charts/test_rbac.py compares this list with the kinds and calls of the code.

A server-side apply that creates an object needs `create` beside `patch`. `get` is for an object that the watches do not
show: one of our names without our label, which is then left alone.
*/}}
{{- define "kvpp-operator.rules" -}}
{{- $owned := list "get" "list" "watch" "create" "patch" "delete" -}}
# The deployments are read; only their status is written.
- apiGroups: [serving.kvpp.io]
  resources: [kvppdeployments]
  verbs: [get, list, watch]
- apiGroups: [serving.kvpp.io]
  resources: [kvppdeployments/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion need it where the admission plugin OwnerReferencesPermissionEnforcement is on.
- apiGroups: [serving.kvpp.io]
  resources: [kvppdeployments/finalizers]
  verbs: [update]
# What a deployment owns.
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: {{ toJson $owned }}
- apiGroups: [apps]
  resources: [controllerrevisions, deployments]
  verbs: {{ toJson $owned }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: {{ toJson $owned }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: {{ toJson $owned }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings, roles]
  verbs: {{ toJson $owned }}
# The same, of APIs that a cluster may lack.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: {{ toJson $owned }}
- apiGroups: [networking.kthena.io]
  resources: [modelroutes, modelservers]
  verbs: {{ toJson $owned }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: {{ toJson $owned }}
# Why an engine is not ready stands in its pods.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# Handed on: nobody can grant a right that they lack, and the operator writes the Roles of these pods.
# MetaService pods elect a leader by a Lease, and the leader labels its own pod.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
# Router pods follow the ready engines.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{- /* Cluster-scoped, and only where the operator serves all namespaces. */}}
{{- define "kvpp-operator.clusterRules" -}}
# kopf looks again at the cluster's APIs when a CRD comes or goes: LeaderWorkerSet may be installed later.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}
